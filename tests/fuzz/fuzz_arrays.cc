// Fuzzes files of several arrays, NPZ and safetensors.
#include "src/data/arrays/array_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const MemoryFile input(data, size);
  const std::vector<std::string> names = {"x", "y"};
  auto file = ArrayFile::read(input.path(), "data", names);
  for (size_t i = 0; file.ok() && i < names.size(); ++i) {
    const bool there = file->has(names[i]);
    const auto array = file->take(names[i]);
    TRAINYARD_CHECK(array.ok() == there, "what it has can be taken");
    if (!there || array->type().text()) continue;
    TRAINYARD_CHECK(std::ssize(array->to_floats()) == array->shape().elements(),
                    "a number for each element");
  }
  return 0;
}
