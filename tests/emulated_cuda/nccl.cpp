// NCCL's functions, as many as the executor calls, on MPI messages: an operation of a stream posts everything of its
// group and ends when all of it has ended. Sends are synchronous (they end only with their receive), so that a schedule
// which counts on buffers deadlocks here and not on a cluster. Whatever NCCL would refuse, or this file does not know,
// ends the process with a sentence.

#include "emulated_cuda/runtime.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nccl.h>

namespace {

[[noreturn]] void refuse(const std::string& what) {
    std::fprintf(stderr, "emulated NCCL: %s\n", what.c_str());
    std::abort();
}

}  // namespace

#ifndef MFSDP_WITH_MPI

namespace {

[[noreturn]] ncclResult_t no_mpi() { refuse("this build has no MPI, on which messages would travel"); }

}  // namespace

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId*) { no_mpi(); }
ncclResult_t ncclCommInitRankConfig(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*) { no_mpi(); }
ncclResult_t ncclCommFinalize(ncclComm_t) { no_mpi(); }
ncclResult_t ncclCommDestroy(ncclComm_t) { no_mpi(); }
ncclResult_t ncclCommAbort(ncclComm_t) { no_mpi(); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*) { no_mpi(); }
const char* ncclGetErrorString(ncclResult_t) { no_mpi(); }
const char* ncclGetLastError(ncclComm_t) { no_mpi(); }
ncclResult_t ncclGroupStart() { no_mpi(); }
ncclResult_t ncclGroupEnd() { no_mpi(); }
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { no_mpi(); }
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { no_mpi(); }
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { no_mpi(); }
}

#else

#include <mpi.h>

#ifdef __SANITIZE_THREAD__
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): ThreadSanitizer's names.
void __tsan_read_range(void* address, unsigned long bytes);
void __tsan_write_range(void* address, unsigned long bytes);
// NOLINTEND(bugprone-reserved-identifier)
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
}
#endif

namespace {

constexpr int kTag = 7;

/// What streams hold of a communicator: it lives until the last of its operations has ended.
struct State {
    MPI_Comm messages = MPI_COMM_NULL;
    int rank = 0;
    int ranks = 0;
    std::atomic<bool> aborted{false};
    std::atomic<ncclResult_t> result{ncclSuccess};
};

struct Operation {
    enum class Kind { send, receive, broadcast };
    Kind kind = Kind::send;
    void* data = nullptr;
    int bytes = 0;
    int peer = 0;
    ncclComm_t communicator = nullptr;
    cudaStream_t stream = nullptr;
};

thread_local int group_depth = 0;
thread_local std::vector<Operation> group;

constexpr const char* kCommunicator = "ncclComm_t";

/// The communicators that are alive. A handle is an object of the emulator, which reports forgotten ones.
class Communicators {
  public:
    [[nodiscard]] ncclComm_t add(std::shared_ptr<State> state) {
        auto* const handle = static_cast<ncclComm_t>(emulated_cuda::make_object(kCommunicator));
        const std::lock_guard lock(mutex_);
        alive_[handle] = std::move(state);
        return handle;
    }
    [[nodiscard]] std::shared_ptr<State> find(ncclComm_t handle, const char* call) {
        emulated_cuda::require_object(handle, kCommunicator, call);
        const std::lock_guard lock(mutex_);
        return alive_.at(handle);
    }
    void remove(ncclComm_t handle, const char* call) {
        emulated_cuda::destroy_object(handle, kCommunicator, call);
        const std::lock_guard lock(mutex_);
        alive_.erase(handle);
    }

  private:
    std::mutex mutex_;
    std::map<ncclComm_t, std::shared_ptr<State> > alive_;
};

Communicators& communicators() {
    static Communicators all;
    return all;
}

/// Whether this call is to fail, as the settings say.
bool fails(const char* call) { return emulated_cuda::settings().failing_call == call; }

void check(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    refuse(std::string(call) + ": " + text);
}

// ThreadSanitizer knows nothing of what orders MPI's threads, of which any may complete any message. So what MPI does
// is hidden from it, its locks too, which would order streams that no event orders. What a message reads and writes is
// told in its stream's name.

struct HiddenFromThreadSanitizer {
#ifdef __SANITIZE_THREAD__
    HiddenFromThreadSanitizer() {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    }
    HiddenFromThreadSanitizer(const HiddenFromThreadSanitizer&) = delete;
    HiddenFromThreadSanitizer& operator=(const HiddenFromThreadSanitizer&) = delete;
    ~HiddenFromThreadSanitizer() {
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
#endif
};

void tell_thread_sanitizer([[maybe_unused]] const Operation& operation, [[maybe_unused]] int rank) {
#ifdef __SANITIZE_THREAD__
    const auto bytes = static_cast<unsigned long>(operation.bytes);
    const bool is_root = operation.kind == Operation::Kind::broadcast && operation.peer == rank;
    if (operation.kind == Operation::Kind::send || is_root) {
        __tsan_read_range(operation.data, bytes);
    } else {
        __tsan_write_range(operation.data, bytes);
    }
#endif
}

/// Waits for `requests`; false if the communicator is aborted first.
bool finish(std::vector<MPI_Request>& requests, std::vector<MPI_Status>& statuses, const State& state) {
    statuses.resize(requests.size());
    for (int done = 0;;) {
        check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, statuses.data()), "MPI_Testall");
        if (done != 0) return true;
        if (state.aborted) break;
        std::this_thread::yield();
    }
    for (MPI_Request& request : requests) {
        if (request == MPI_REQUEST_NULL) continue;
        MPI_Cancel(&request);
        MPI_Request_free(&request);
    }
    return false;
}

/// One group, at its place in the stream.
struct Task {
    std::shared_ptr<State> state;
    std::vector<Operation> operations;

    void run() const {
        while (state->result != ncclSuccess && !state->aborted) std::this_thread::yield();  // the other side is gone
        if (state->aborted) return;
        for (const Operation& operation : operations) {
            emulated_cuda::require_device_memory(operation.data, static_cast<std::size_t>(operation.bytes),
                                                 "a message of NCCL");
            tell_thread_sanitizer(operation, state->rank);
        }
        [[maybe_unused]] const HiddenFromThreadSanitizer hidden;
        std::vector<MPI_Request> requests;
        std::vector<const Operation*> posted;
        const auto post = [&](Operation::Kind kind, const auto& call) {
            for (const Operation& operation : operations) {
                if (operation.kind != kind) continue;
                requests.emplace_back();
                posted.push_back(&operation);
                call(operation, &requests.back());
            }
        };
        const MPI_Comm messages = state->messages;
        post(Operation::Kind::receive, [&](const Operation& o, MPI_Request* request) {
            check(MPI_Irecv(o.data, o.bytes, MPI_BYTE, o.peer, kTag, messages, request), "MPI_Irecv");
        });
        post(Operation::Kind::send, [&](const Operation& o, MPI_Request* request) {
            check(MPI_Issend(o.data, o.bytes, MPI_BYTE, o.peer, kTag, messages, request), "MPI_Issend");
        });
        post(Operation::Kind::broadcast, [&](const Operation& o, MPI_Request* request) {
            check(MPI_Ibcast(o.data, o.bytes, MPI_BYTE, o.peer, messages, request), "MPI_Ibcast");
        });
        std::vector<MPI_Status> statuses;
        if (!finish(requests, statuses, *state)) return;
        for (std::size_t i = 0; i < posted.size(); ++i) {
            if (posted[i]->kind != Operation::Kind::receive) continue;
            int bytes = 0;
            check(MPI_Get_count(&statuses[i], MPI_BYTE, &bytes), "MPI_Get_count");
            if (bytes == posted[i]->bytes) continue;
            refuse("rank " + std::to_string(state->rank) + " receives " + std::to_string(posted[i]->bytes) +
                   " bytes from rank " + std::to_string(posted[i]->peer) + ", which sent " + std::to_string(bytes));
        }
    }
};

ncclResult_t issue(std::vector<Operation> operations) {
    if (operations.empty()) return ncclSuccess;
    const Operation& first = operations.front();
    for (const Operation& operation : operations) {
        if (operation.communicator != first.communicator || operation.stream != first.stream) {
            refuse("a group on several communicators or streams");
        }
    }
    const std::shared_ptr<State> state = communicators().find(first.communicator, "a group");
    if (fails("ncclGroupEnd")) return ncclInternalError;
    if (fails("asynchronously")) state->result = ncclRemoteError;
    emulated_cuda::enqueue(first.stream, [task = Task{state, operations}] { task.run(); });
    return ncclSuccess;
}

ncclResult_t add(Operation::Kind kind, void* data, std::size_t count, ncclDataType_t type, int peer,
                 ncclComm_t communicator, cudaStream_t stream) {
    const std::shared_ptr<State> state = communicators().find(communicator, "an operation");
    if (type != ncclUint8) refuse("a type other than bytes: " + std::to_string(static_cast<int>(type)));
    if (count == 0 || count > (std::size_t{1} << 30U)) refuse("a message of " + std::to_string(count) + " bytes");
    if (data == nullptr) refuse("a message without memory");
    if (peer < 0 || peer >= state->ranks) refuse("rank " + std::to_string(peer) + " as the other side of a message");
    if (peer == state->rank && kind != Operation::Kind::broadcast) refuse("a message of a rank to itself");
    group.push_back({kind, data, static_cast<int>(count), peer, communicator, stream});
    if (group_depth > 0) return ncclSuccess;
    return issue(std::exchange(group, {}));
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    if (fails(__func__)) return ncclSystemError;
    static std::atomic<int> made{0};
    int rank = 0;
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    std::memset(id, 0, sizeof *id);
    std::snprintf(id->internal, sizeof id->internal, "emulated %d of rank %d", ++made, rank);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    if (config->blocking != 1) refuse("communicators that do not block");
    auto state = std::make_shared<State>();
    check(MPI_Comm_dup(MPI_COMM_WORLD, &state->messages), "MPI_Comm_dup");
    check(MPI_Comm_rank(state->messages, &state->rank), "MPI_Comm_rank");
    check(MPI_Comm_size(state->messages, &state->ranks), "MPI_Comm_size");
    if (ranks != state->ranks || rank != state->rank) {
        refuse("rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ", where MPI has rank " +
               std::to_string(state->rank) + " of " + std::to_string(state->ranks));
    }
    ncclUniqueId first = id;
    check(MPI_Bcast(first.internal, sizeof first.internal, MPI_BYTE, 0, state->messages), "MPI_Bcast");
    if (std::memcmp(&first, &id, sizeof id) != 0) refuse("ranks come with different names");
    check(MPI_Comm_set_errhandler(state->messages, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    *communicator = communicators().add(std::move(state));
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
    const std::shared_ptr<State> state = communicators().find(communicator, __func__);
    std::vector<MPI_Request> requests(1);
    std::vector<MPI_Status> statuses;
    check(MPI_Ibarrier(state->messages, requests.data()), "MPI_Ibarrier");
    finish(requests, statuses, *state);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
    MPI_Comm_free(&communicators().find(communicator, __func__)->messages);
    communicators().remove(communicator, __func__);
    return ncclSuccess;
}

// MPI's communicator is left alone: freeing it is for all ranks.
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
    communicators().find(communicator, __func__)->aborted = true;
    communicators().remove(communicator, __func__);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* result) {
    *result = communicators().find(communicator, __func__)->result;
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        default:
            return "an error of the emulated NCCL";
    }
}

const char* ncclGetLastError(ncclComm_t /*communicator*/) { return ""; }

ncclResult_t ncclGroupStart() {
    ++group_depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (group_depth == 0) refuse("the end of a group that was not begun");
    if (--group_depth > 0) return ncclSuccess;
    return issue(std::exchange(group, {}));
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
    return add(Operation::Kind::send, const_cast<void*>(data), count, type, peer, communicator, stream);
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
    return add(Operation::Kind::receive, data, count, type, peer, communicator, stream);
}

ncclResult_t ncclBroadcast(const void* source, void* target, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
    if (source != target) refuse("a broadcast that is not in place");
    return add(Operation::Kind::broadcast, target, count, type, root, communicator, stream);
}

}  // extern "C"

#endif
