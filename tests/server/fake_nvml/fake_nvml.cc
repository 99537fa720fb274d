// A library with NVML's names that answers from a script in the environment, so that the loader is
// tested on machines without a GPU. FAKE_NVML: "devices=2", "init=9" (a driver that is not loaded),
// "broken=1" (device 1 is lost).
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
int script(const char* key) {
  const char* text = std::getenv("FAKE_NVML");
  const char* at = text == nullptr ? nullptr : std::strstr(text, key);
  return at == nullptr ? 0 : std::atoi(at + std::strlen(key));
}
struct Memory {
  unsigned long long total, free, used;
};
int devices[8];
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
  *memory = {141ull << 30, 140ull << 30, 1ull << 30};
  const int broken = script("broken=");
  return broken != 0 && device == &devices[broken] ? 15 : 0;
}
int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  std::snprintf(version, size, "580.00");
  return 0;
}
}
