#pragma once

// What tests may ask of the emulated module beside its entry; C functions found by dlsym.

extern "C" {
/// "devices=2,asynchronous=1,seed=7,workers=1,backwards=1,memory_bytes=1000000,failing_call=cudaMalloc": sets these and
/// leaves the others; see Settings. An unknown name ends the program.
__attribute__((visibility("default"))) void mfsdp_emulated_cuda_configure(const char* settings);
/// Sentences on what was not released, one a line; empty if there is nothing. Valid until the next call.
__attribute__((visibility("default"))) const char* mfsdp_emulated_cuda_leaks();
/// How often since the start: "waits" of the host for work that was not done yet, "allocations" and releases of device
/// or pinned memory. Another name ends the program.
__attribute__((visibility("default"))) long long mfsdp_emulated_cuda_count(const char* what);
}
