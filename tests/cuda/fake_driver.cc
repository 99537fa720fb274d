// A CUDA driver without a device, which loads every kernel and runs none. With it, cuDNN compiles
// its attention kernels for a described GPU on hosts without a driver. It is loaded under the
// driver's name.
#define ANSWERS_NOTHING(NAME) \
  int NAME();                 \
  int NAME() { return 0; }
#define ANSWERS_A_HANDLE(NAME)                        \
  int NAME(void** handle);                            \
  int NAME(void** handle) {                           \
    *handle = reinterpret_cast<void*>(sizeof(void*)); \
    return 0;                                         \
  }
#define ANSWERS_A_NUMBER(NAME, NUMBER) \
  int NAME(int* number);               \
  int NAME(int* number) {              \
    *number = NUMBER;                  \
    return 0;                          \
  }
#define ANSWERS_A_NAME(NAME)               \
  int NAME(int code, const char** name);   \
  int NAME(int, const char** name) {       \
    *name = "an error of the fake driver"; \
    return 0;                              \
  }

extern "C" {
int cuInit(unsigned flags);
int cuInit(unsigned) { return 100; }  // no device
ANSWERS_A_NUMBER(cuDriverGetVersion, 13000)
ANSWERS_A_NUMBER(cuDeviceGetCount, 0)
ANSWERS_A_NAME(cuGetErrorString)
ANSWERS_A_NAME(cuGetErrorName)
ANSWERS_A_HANDLE(cuLibraryLoadData)
ANSWERS_A_HANDLE(cuLibraryLoadFromFile)
ANSWERS_A_HANDLE(cuLibraryGetKernel)
ANSWERS_A_HANDLE(cuModuleLoadData)
ANSWERS_A_HANDLE(cuModuleLoadDataEx)
ANSWERS_A_HANDLE(cuModuleGetFunction)
ANSWERS_A_NUMBER(cuKernelGetAttribute, 0)
ANSWERS_A_NUMBER(cuFuncGetAttribute, 0)
ANSWERS_A_NUMBER(cuOccupancyMaxPotentialClusterSize, 8)
ANSWERS_A_NUMBER(cuOccupancyMaxActiveBlocksPerMultiprocessor, 1)
ANSWERS_NOTHING(cuCtxGetCurrent)
ANSWERS_NOTHING(cuCtxGetLimit)
ANSWERS_NOTHING(cuCtxPopCurrent)
ANSWERS_NOTHING(cuCtxPushCurrent)
ANSWERS_NOTHING(cuDeviceGet)
ANSWERS_NOTHING(cuFuncSetAttribute)
ANSWERS_NOTHING(cuKernelSetAttribute)
ANSWERS_NOTHING(cuLaunchCooperativeKernel)
ANSWERS_NOTHING(cuLaunchKernel)
ANSWERS_NOTHING(cuLaunchKernelEx)
ANSWERS_NOTHING(cuLibraryUnload)
ANSWERS_NOTHING(cuLinkAddData)
ANSWERS_NOTHING(cuLinkAddData_v2)
ANSWERS_NOTHING(cuLinkAddFile_v2)
ANSWERS_NOTHING(cuLinkComplete)
ANSWERS_NOTHING(cuLinkCreate)
ANSWERS_NOTHING(cuLinkCreate_v2)
ANSWERS_NOTHING(cuLinkDestroy)
ANSWERS_NOTHING(cuMemcpyDtoH_v2)
ANSWERS_NOTHING(cuModuleGetGlobal_v2)
ANSWERS_NOTHING(cuModuleLoadFatBinary)
ANSWERS_NOTHING(cuModuleUnload)
ANSWERS_NOTHING(cuStreamGetCtx)
ANSWERS_NOTHING(cuStreamSynchronize)
ANSWERS_NOTHING(cuTensorMapEncodeTiled)
}
