// Fuzzes the index of weights that are split over several files. No accepted index names a file
// outside of its folder.
#include "src/checkpoint/weights_index.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const MemoryFile file(data, size);
  const auto index = WeightsIndex::read(file.path());
  if (!index.ok()) return 0;
  for (const std::string& name : index->files) {
    TRAINYARD_CHECK(name != ".." && name.find('/') == std::string::npos, "a file of the folder");
  }
  for (const auto& [tensor, place] : index->of_tensor) {
    TRAINYARD_CHECK(place < index->files.size(), "a tensor's file is listed");
  }
  return 0;
}
