// libnvidia-ml.so.1 without a driver. Settings from the environment:
//   FAKE_DEVICES           how many devices (1)
//   FAKE_NVML_MIG          how many instances each device is cut into (0)
//   FAKE_NVML_USED_MIB_i   memory taken (MiB) of device i; an instance's: _i_k
// A handle is 1 + 100 * device + (1 + instance, where it is one).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void* Handle;
enum { FINE = 0, INVALID = 2, UNSUPPORTED = 3, ABSENT = 6 };

static long setting(const char* name, long otherwise) {
  const char* value = getenv(name);
  return value && *value ? atol(value) : otherwise;
}
static long devices(void) { return setting("FAKE_DEVICES", 1); }
static long device_of(Handle handle) { return ((long)handle - 1) / 100; }
static long instance_of(Handle handle) { return ((long)handle - 1) % 100 - 1; }  // -1: the whole device
static Handle made(long device, long instance) { return (Handle)(1 + 100 * device + 1 + instance); }

int nvmlInit(void) { return FINE; }
int nvmlInit_v2(void) { return FINE; }
int nvmlInitWithFlags(unsigned flags) { return (void)flags, FINE; }
int nvmlShutdown(void) { return FINE; }
const char* nvmlErrorString(int error) {
  return error == UNSUPPORTED ? "Not Supported" : error == INVALID ? "Invalid Argument" : "an error of the fake NVML";
}
int nvmlSystemGetDriverVersion(char* told, unsigned bytes) { return snprintf(told, bytes, "580.00"), FINE; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = 13020, FINE; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = (unsigned)devices(), FINE; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* handle) {
  if ((long)index >= devices()) return INVALID;
  return *handle = made((long)index, -1), FINE;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* place, Handle* handle) {
  unsigned domain, bus;
  if (sscanf(place, "%x:%x", &domain, &bus) != 2 || bus < 16) return ABSENT;
  return nvmlDeviceGetHandleByIndex_v2(bus - 16, handle);
}
int nvmlDeviceGetUUID(Handle handle, char* told, unsigned bytes) {
  long b = 0x10 + device_of(handle);  // as the runtime's properties say it
  if (instance_of(handle) >= 0)
    snprintf(told, bytes, "MIG-%08lx-0000-0000-0000-%012lx", device_of(handle), instance_of(handle));
  else
    snprintf(told, bytes, "GPU-%02lx%02lx%02lx%02lx-%02lx%02lx-%02lx%02lx-%02lx%02lx-%02lx%02lx%02lx%02lx%02lx%02lx", b, b, b, b, b, b,
             b, b, b, b, b, b, b, b, b, b);
  return FINE;
}
int nvmlDeviceGetHandleByUUID(const char* asked, Handle* handle) {
  char told[64];
  for (long device = 0; device < devices(); device++)
    for (long instance = -1; instance < setting("FAKE_NVML_MIG", 0); instance++) {
      nvmlDeviceGetUUID(made(device, instance), told, sizeof told);
      if (!strcmp(told, asked)) return *handle = made(device, instance), FINE;
    }
  return ABSENT;
}
int nvmlDeviceGetMigMode(Handle handle, unsigned* now, unsigned* later) {
  (void)handle;
  *now = *later = setting("FAKE_NVML_MIG", 0) > 0;
  return FINE;
}
int nvmlDeviceGetMaxMigDeviceCount(Handle handle, unsigned* count) { return (void)handle, *count = 7, FINE; }
int nvmlDeviceGetMigDeviceHandleByIndex(Handle handle, unsigned index, Handle* instance) {
  if ((long)index >= setting("FAKE_NVML_MIG", 0)) return ABSENT;
  return *instance = made(device_of(handle), (long)index), FINE;
}
int nvmlDeviceGetName(Handle handle, char* told, unsigned bytes) {
  return snprintf(told, bytes, "Fake device %ld", device_of(handle)), FINE;
}
struct Utilisation {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(Handle handle, struct Utilisation* told) {
  if (instance_of(handle) >= 0) return UNSUPPORTED;
  told->gpu = told->memory = 0;
  return FINE;
}
struct Memory {
  unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(Handle handle, struct Memory* told) {
  char name[64];
  if (instance_of(handle) < 0)
    snprintf(name, sizeof name, "FAKE_NVML_USED_MIB_%ld", device_of(handle));
  else
    snprintf(name, sizeof name, "FAKE_NVML_USED_MIB_%ld_%ld", device_of(handle), instance_of(handle));
  told->total = (instance_of(handle) < 0 ? 80ull : 10ull) << 30;
  told->used = (unsigned long long)setting(name, 500) << 20;
  told->free = told->total - told->used;
  return FINE;
}
int nvmlDeviceGetPowerUsage(Handle handle, unsigned* told) { return (void)handle, *told = 100000, FINE; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Handle handle, unsigned long long* told) { return (void)handle, *told = 1, FINE; }
int nvmlDeviceGetCurrentClocksEventReasons(Handle handle, unsigned long long* told) { return (void)handle, *told = 1, FINE; }
int nvmlDeviceGetComputeRunningProcesses_v3(Handle handle, unsigned* count, void* told) {
  return (void)handle, (void)told, *count = 0, FINE;
}
int nvmlDeviceGetComputeRunningProcesses(Handle handle, unsigned* count, void* told) {
  return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, told);
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return UNSUPPORTED; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return UNSUPPORTED; }
int nvmlDeviceGetGpuFabricInfoV(void) { return UNSUPPORTED; }
