// Open MPI closes its plugins at its end, and LeakSanitizer cannot tell any more whose the memory is that they have
// left. In programs with this function they stay open, and scripts/lsan.supp knows them by name.
extern "C" __attribute__((visibility("default"))) int dlclose(void* library);

int dlclose(void* /*library*/) { return 0; }
