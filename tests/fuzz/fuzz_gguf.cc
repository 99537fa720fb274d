// Fuzzes GGUF files: of an accepted one, all that is read of the network, the tensors and the
// tokenizer must be read without a fault, and the numbers of a row must be there.
#include "src/base/check.h"
#include "src/pretrained/gguf/gguf_config.h"
#include "src/pretrained/gguf/gguf_tensors.h"
#include "src/pretrained/gguf/gguf_tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace trainyard {
namespace {

void read_numbers(const MappedTensor& tensor) {
  const std::string dtype = narrowest_dtype(tensor);
  const TensorNumbers numbers(tensor);
  std::vector<float> row(static_cast<size_t>(numbers.row_length()));
  std::string bytes;
  for (int64_t i = 0; i < numbers.rows(); ++i) {
    numbers.read_row(i, row);
    append_numbers(row, dtype, bytes);
  }
  TRAINYARD_CHECK(std::ssize(bytes) == tensor.shape.elements() * (dtype == "F32" ? 4 : 2),
                  "all numbers are stored");
}

void read_network(const GgufFile& file) {
  const auto architecture = find_gguf_architecture(file);
  if (!architecture.ok()) return;
  const auto config = gguf_config(file, **architecture);
  if (!config.ok()) return;
  const auto model = read_model_config(*config);
  if (!model.ok()) return;
  const auto tensors = map_tensors(file, **architecture, *model);
  if (!tensors.ok()) return;
  for (const MappedTensor& tensor : *tensors) read_numbers(tensor);
}

}  // namespace
}  // namespace trainyard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  for (const GgufTensor& tensor : file->tensors()) {
    std::vector<float> numbers(static_cast<size_t>(tensor.shape.elements()));
    widen_blocks(*tensor.type, tensor.bytes, numbers);
  }
  (void)gguf_tokenizer(*file);
  read_network(*file);
  return 0;
}
