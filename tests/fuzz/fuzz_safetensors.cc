// Fuzzes safetensors files, read as the engine's own and as foreign weights of any type.
#include "src/base/check.h"
#include "src/checkpoint/safetensors_header.h"
#include "src/checkpoint/weights_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto parts = split_safetensors(bytes);
  const auto file = WeightsFile::parse(bytes);
  TRAINYARD_CHECK(parts.ok() == file.ok(), "both read the same header");
  for (size_t i = 0; file.ok() && i < file->tensors().size(); ++i) {
    const FileTensor& tensor = file->tensors()[i];
    if (!converts_to_f32(tensor.dtype)) continue;
    TRAINYARD_CHECK(std::ssize(to_f32(tensor.dtype, file->bytes(i))) == tensor.shape.elements(),
                    "a number for each element");
  }
  return 0;
}
