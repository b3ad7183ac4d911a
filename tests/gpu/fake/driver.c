// libcuda.so.1 without a driver: the names that torch looks up there. Nothing is done.
#define NOTHING(name) \
  int name(void) { return 0; }
NOTHING(cuInit) NOTHING(cuDriverGetVersion) NOTHING(cuGetErrorString) NOTHING(cuDeviceGet) NOTHING(cuDeviceGetAttribute)
NOTHING(cuDevicePrimaryCtxRetain) NOTHING(cuCtxCreate) NOTHING(cuCtxCreate_v2) NOTHING(cuCtxGetCurrent) NOTHING(cuCtxSetCurrent)
NOTHING(cuCtxPushCurrent) NOTHING(cuCtxPopCurrent) NOTHING(cuModuleLoadData) NOTHING(cuModuleGetFunction) NOTHING(cuModuleUnload)
NOTHING(cuLaunchKernel) NOTHING(cuLaunchCooperativeKernel) NOTHING(cuFuncGetAttribute) NOTHING(cuFuncSetAttribute)
NOTHING(cuOccupancyMaxActiveBlocksPerMultiprocessor) NOTHING(cuTensorMapEncodeTiled) NOTHING(cuStreamWriteValue32_v2)
NOTHING(cuPointerGetAttribute) NOTHING(cuMemGetAddressRange) NOTHING(cuMemGetAddressRange_v2)
NOTHING(cuLogsRegisterCallback) NOTHING(cuLogsUnregisterCallback)

int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  (void)device;
  if (flags) *flags = 0;
  if (active) *active = 1;
  return 0;
}
