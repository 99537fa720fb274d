// A library with NVML's function names that takes its results from a script in the environment, so
// that the loader can be tested on machines without a GPU. Settings in TRAINYARD_NVML_SCRIPT:
// "devices=2", "init=9" (the driver is not loaded), "broken=1" (device 1 is lost), "context=600"
// (600 MiB are in use from the second query on), "xid=79,at=1" (device 1 reports Xid 79, once for
// each number), "mig=2" (device 0 is in MIG mode and has two instances, with a gap between their
// indices; -1: none), "cc=75" (compute capability 7.5 instead of 9.0), "mj=1500" (the energy
// counter of each GPU, in millijoules; instances have none). Compiled with TRAINYARD_FAKE_NVML_OLD
// the library cannot list instances.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
int script(const char* key) {
  const char* text = std::getenv("TRAINYARD_NVML_SCRIPT");
  const char* at = text == nullptr ? nullptr : std::strstr(text, key);
  return at == nullptr ? 0 : std::atoi(at + std::strlen(key));
}
struct Memory {
  unsigned long long total, free, used;
};
int devices[8];
int instances[8];  // MIG instances of device 0
int index_in(const int (&all)[8], const void* device) {
  const auto* const at = static_cast<const int*>(device);
  return at >= all && at < all + 8 ? static_cast<int>(at - all) : -1;
}
struct Event {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
bool is_watched[8];
}  // namespace

extern "C" {
int nvmlInit_v2() { return script("init="); }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "GPU is lost"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(script("devices="));
  return script("count=");
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* pending) {
  if (device != &devices[0]) return 3;  // NOT_SUPPORTED
  *now = *pending = script("mig=") != 0 ? 1 : 0;
  return 0;
}
#ifndef TRAINYARD_FAKE_NVML_OLD
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** instance) {
  if (index % 2 != 0 || static_cast<int>(index) >= 2 * script("mig=")) return 6;  // NOT_FOUND
  *instance = &instances[index];
  return 0;
}
#endif
int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  std::snprintf(name, size, "NVIDIA H200%s", index_in(instances, device) < 0 ? "" : " MIG 1g.18gb");
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  if (index_in(instances, device) >= 0) return 2;  // INVALID_ARGUMENT
  const int of = script("cc=");
  *major = of == 0 ? 9 : of / 10;
  *minor = of % 10;
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  if (const int instance = index_in(instances, device); instance >= 0) {
    std::snprintf(uuid, size, "MIG-0-%d", instance);
  } else {
    std::snprintf(uuid, size, "GPU-%d", index_in(devices, device));
  }
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  static int looks = 0;
  const auto context =
      looks++ > 0 ? static_cast<unsigned long long>(script("context=")) << 20 : 0ull;
  if (index_in(instances, device) >= 0) {
    *memory = {16ull << 30, (16ull << 30) - context, context};
    return 0;
  }
  *memory = {141ull << 30, (140ull << 30) - context, (1ull << 30) + context};
  const int broken = script("broken=");
  return broken != 0 && device == &devices[broken] ? 15 : 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  const int counter = script("mj=");
  if (counter == 0 || index_in(instances, device) >= 0) return 3;  // NOT_SUPPORTED
  *millijoules = static_cast<unsigned long long>(counter);
  return 0;
}
int nvmlEventSetCreate(void** set) {
  *set = is_watched;
  return 0;
}
int nvmlEventSetFree(void*) { return 0; }
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void*) {
  if (types != 8) return 2;
  is_watched[static_cast<int*>(device) - devices] = true;
  return 0;
}
int nvmlEventSetWait_v2(void*, Event* event, unsigned timeout_ms) {
  static int told = 0;
  const int xid = script("xid="), at = script("at=");
  if (timeout_ms != 0 || xid == told || xid == 0 || !is_watched[at]) return 10;  // TIMEOUT
  told = xid;
  *event = {&devices[at], 8, static_cast<unsigned long long>(xid), 0, 0};
  return 0;
}
int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  std::snprintf(version, size, "580.00");
  return 0;
}
}
