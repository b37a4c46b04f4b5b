#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"

#include "device/transfers.h"
#include "support/catch.h"

#include <csignal>
#include <functional>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mfsdp::device {

namespace {

using test::Bench;

/// The signal that ends a child process doing `action`; 0 if it ends by itself.
int signal_of(const std::function<void()>& action) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const rlimit no_core{0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        for (const int signal : {SIGSEGV, SIGBUS}) std::signal(signal, SIG_DFL);  // not the test program's handler
        action();
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("in guard mode operations, copies and host addresses work") {
    Bench bench(make_cpu_device({.threads = 2, .guard_addresses = true}));
    const Tensor a = bench.send(std::vector<float>{1, 2, 3, 4}).reshape({2, 2});
    const Tensor out = bench.reserve(DType::float32, 4).reshape({2, 2});
    launch(bench.stream(), Matmul{out, a, a});
    CHECK(bench.fetch(out) == std::vector<float>{7, 10, 15, 22});
    std::byte* const host = bench.device().host_address(out.data);
    REQUIRE(host != out.data);
    CHECK(reinterpret_cast<const float*>(host)[3] == 22.0F);
    CHECK(bench.device().host_address(nullptr) == nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(out.data) % 256 == 0);
}

TEST_CASE("in guard mode following a device address dies, for reading and for writing") {
    Bench bench(make_cpu_device({.guard_addresses = true}));
    const Tensor x = bench.send(std::vector<float>{1, 2, 3});
    volatile float* const device_address = reinterpret_cast<volatile float*>(x.data);
    CHECK(signal_of([&] { (void)device_address[1]; }) == SIGSEGV);
    CHECK(signal_of([&] { device_address[1] = 5.0F; }) == SIGSEGV);
    volatile float* const host = reinterpret_cast<volatile float*>(bench.device().host_address(x.data));
    CHECK(signal_of([&] { host[1] = 5.0F; }) == 0);
}

TEST_CASE("without guard mode host and device addresses are the same") {
    Bench bench(make_cpu_device({}));
    const Tensor x = bench.send(std::vector<float>{1, 2, 3});
    CHECK(bench.device().host_address(x.data) == x.data);
    CHECK(reinterpret_cast<std::uintptr_t>(x.data) % 256 == 0);
}

TEST_CASE("guarded memory that was given back is handed out again, and blocks never overlap") {
    const auto device = make_cpu_device({.guard_addresses = true});
    std::byte* const first = device->allocate(1000);
    std::byte* const second = device->allocate(300);
    CHECK(second - first == 1024);
    device->deallocate(first, 1000);
    std::byte* const small = device->allocate(1);
    std::byte* const large = device->allocate(2000);
    CHECK(small == first);
    CHECK(large - second == 512);
    CHECK_THROWS_AS(device->allocate(std::int64_t{1} << 40), DeviceError);
}

TEST_CASE("asynchronous streams work on guarded memory too") {
    Bench bench(make_cpu_device({.threads = 2, .asynchronous_streams = true, .guard_addresses = true}));
    const Tensor x = bench.send(std::vector<float>{1, 2, 3});
    launch(bench.stream(), Add{x, x, x});
    CHECK(bench.fetch(x) == std::vector<float>{2, 4, 6});
}

TEST_CASE("the description of a CPU device names its instructions and who computes its products") {
    const std::string text = make_cpu_device({})->description();
    INFO(text);
    CHECK(text.substr(0, 4) == "cpu ");
    CHECK((text.find("oneDNN ") != std::string::npos || text.find("own products") != std::string::npos));
    CHECK(text == make_cpu_device({.threads = 3, .guard_addresses = true})->description());
}

}  // namespace mfsdp::device
