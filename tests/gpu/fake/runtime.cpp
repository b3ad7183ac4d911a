// The rest of the runtime that torch calls: devices, streams, events, kernels (only their time passes), and what tests ask.
#include <cstdio>
#include <cstring>
#include <string>
#include <tuple>
#include <unordered_map>

#include "world.h"

#define ENTER \
  Entered entered; \
  if (auto error = awake()) return error

static constexpr double KERNEL_S = 5e-6, LAUNCH_S = 3e-6, CYCLES_A_SECOND = 1e9;

static std::unordered_map<const void*, std::string>& kernels() {
  static auto* names = new std::unordered_map<const void*, std::string>;
  return *names;
}

static cudaError_t launched(const void* kernel, void** arguments, cudaStream_t stream) {
  ENTER;
  auto& all = world();
  if (auto error = all.next_launch) {
    all.next_launch = cudaSuccess;
    return failed(error);
  }
  bool spins = kernels()[kernel].find("spin_kernel") != std::string::npos && arguments;
  double until = now() + LAUNCH_S;
  queue(entered, stream_of(stream), spins ? (double)*(int64_t*)arguments[0] / CYCLES_A_SECOND : KERNEL_S, nullptr);
  while (now() < until) {
  }
  return cudaSuccess;
}

static int is_active(int, unsigned* flags, int* active) {
  if (flags) *flags = 0;
  if (active) *active = 1;
  return 0;
}
static int nothing() { return 0; }

extern "C" {
// -- devices
cudaError_t cudaGetDeviceCount(int* count) {
  Entered entered;
  *count = 0;
  if (awake() == cudaErrorInitializationError) return cudaErrorInitializationError;
  *count = (int)world().devices.size();
  return *count ? cudaSuccess : failed(cudaErrorNoDevice);
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* told, int device) {
  memset(told, 0, sizeof *told);
  snprintf(told->name, sizeof told->name, "Fake device %d", device);
  memset(&told->uuid, 0x10 + device, sizeof told->uuid);
  told->major = 9;
  told->totalGlobalMem = world().bytes_each;
  told->multiProcessorCount = 132;
  told->warpSize = 32;
  told->maxThreadsPerBlock = told->maxThreadsDim[0] = told->maxThreadsDim[1] = 1024;
  told->maxThreadsDim[2] = 64;
  told->maxGridSize[0] = 2147483647;
  told->maxGridSize[1] = told->maxGridSize[2] = 65535;
  told->maxThreadsPerMultiProcessor = 2048;
  told->sharedMemPerBlock = 49152;
  told->sharedMemPerBlockOptin = 232448;
  told->sharedMemPerMultiprocessor = 233472;
  told->regsPerBlock = told->regsPerMultiprocessor = 65536;
  told->l2CacheSize = 50 << 20;
  told->textureAlignment = 512;
  told->asyncEngineCount = 3;
  told->pciBusID = 16 + device;
  told->concurrentKernels = told->unifiedAddressing = told->canMapHostMemory = told->managedMemory = 1;
  told->cooperativeLaunch = told->streamPrioritiesSupported = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  static const std::unordered_map<int, int> known = {
      {cudaDevAttrComputeCapabilityMajor, 9}, {cudaDevAttrMultiProcessorCount, 132}, {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrWarpSize, 32}, {cudaDevAttrMaxSharedMemoryPerBlock, 49152}};
  auto found = known.find(which);
  return *value = found == known.end() ? 0 : found->second, cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* told, int bytes, int device) {
  return snprintf(told, bytes, "0000:%02x:00.0", 16 + device), cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  ENTER;
  for (auto* stream : world().streams)
    if (stream->device == current()) wait(entered, stream);
  return awake();
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorInitializationError ? "cudaErrorInitializationError" : error == cudaErrorAssert ? "cudaErrorAssert" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInitializationError ? "initialization error"
         : error == cudaErrorMemoryAllocation  ? "out of memory"
         : error == cudaErrorAssert            ? "device-side assert triggered"
         : error == cudaErrorNoDevice          ? "no CUDA-capable device is detected"
         : error == cudaErrorLaunchFailure     ? "unspecified launch failure"
                                               : "error of the fake device";
}

// -- streams
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  ENTER;
  auto* made = new Stream{current(), false};
  world().streams.push_back(made);
  return *stream = (cudaStream_t)made, cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) { return *priority = 0, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER;
  wait(entered, stream_of(stream));
  return awake();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  ENTER;
  return idle(stream_of(stream)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENTER;
  if (const auto& mark = ((Event*)event)->mark) queue(entered, stream_of(stream), -1, nullptr, nullptr, mark);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* told) {
  return *told = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* told, unsigned long long* id, cudaGraph_t*,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  if (id) *id = 0;
  return *told = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  ENTER;
  queue(entered, stream_of(stream), 0, [=] { function(argument); });
  return cudaSuccess;
}

// -- events
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  ENTER;
  return *event = (cudaEvent_t) new Event, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Entered entered;
  delete (Event*)event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTER;
  auto mark = ((Event*)event)->mark = std::make_shared<Mark>();
  queue(entered, stream_of(stream), 0, nullptr, mark);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) { return cudaEventRecord(event, stream); }
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER;
  const auto& mark = ((Event*)event)->mark;
  return !mark || reached(mark) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER;
  if (auto mark = ((Event*)event)->mark) wait(entered, mark);
  return awake();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begun, cudaEvent_t ended) {
  ENTER;
  auto first = ((Event*)begun)->mark, last = ((Event*)ended)->mark;
  if (!first || !last) return failed(cudaErrorInvalidResourceHandle);
  if (!reached(first) || !reached(last)) return cudaErrorNotReady;
  return *milliseconds = (float)((last->at - first->at) * 1e3), cudaSuccess;
}

// -- kernels
static thread_local std::vector<std::tuple<dim3, dim3, size_t, void*>> configured;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configured.emplace_back(grid, block, shared, stream);
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  std::tie(*grid, *block, *shared, *(void**)stream) = configured.back();
  configured.pop_back();
  return cudaSuccess;
}
void** __cudaRegisterFatBinary(void*) {
  static void* handle[2];
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  kernels()[function] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) { return *kernel = (cudaKernel_t)function, cudaSuccess; }
cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void** arguments, size_t, cudaStream_t stream) {
  return launched(kernel, arguments, stream);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** arguments, size_t, cudaStream_t stream) {
  return launched((const void*)kernel, arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* kernel, void** arguments) {
  return launched(kernel, arguments, how->stream);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* told, const void*) {
  memset(told, 0, sizeof *told);
  told->maxThreadsPerBlock = 1024;
  told->numRegs = 32;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* count, const void*, int, size_t) { return *count = 2, cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void*, int, size_t, unsigned) {
  return *count = 2, cudaSuccess;
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = !strcmp(name, "cuDevicePrimaryCtxGetState") ? (void*)is_active : (void*)nothing;
  if (found) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// -- what tests ask, by ctypes
int fake_owner() { return owner; }         // the process that woke the driver; 0: none has
long fake_waits() { return world().waits; }  // how often the host waited for the device
void fake_fail_next_launch(int error) { world().next_launch = (cudaError_t)error; }
// The work queued now on the current device's default stream ends in an assertion: every later call fails.
void fake_assertion() {
  Entered entered;
  auto* device = &world().devices[current()];
  device->breaks_at = device->standard->free_at;
  queue(entered, device->standard, 0, [=] { device->broken = cudaErrorAssert; });
}
}
