// A library with NVML's names that answers from a script in the environment, so that the loader is
// tested on machines without a GPU. TRAINYARD_NVML_SCRIPT: "devices=2", "init=9" (a driver that is
// not loaded), "broken=1" (device 1 is lost), "context=600" (MiB that are in use from the second
// look on), "xid=79,at=1" (device 1 reports that error, once for each number).
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
int nvmlDeviceGetName(void*, char* name, unsigned size) {
  std::snprintf(name, size, "NVIDIA H200");
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  std::snprintf(uuid, size, "GPU-%d", static_cast<int>(static_cast<int*>(device) - devices));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  static int looks = 0;
  const auto context =
      looks++ > 0 ? static_cast<unsigned long long>(script("context=")) << 20 : 0ull;
  *memory = {141ull << 30, (140ull << 30) - context, (1ull << 30) + context};
  const int broken = script("broken=");
  return broken != 0 && device == &devices[broken] ? 15 : 0;
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
