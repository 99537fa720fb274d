// Fuzzes NumPy files of one array.
#include "src/data/arrays/array_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const auto source = open_memory_source(text_of(data, size), "x");
  auto array = read_npy(*source, "x");
  if (!array.ok()) return 0;
  const int64_t elements = array->shape().elements();
  if (array->type().text()) {
    for (int64_t row = 0; array->shape().rank() == 1 && row < array->rows(); ++row) {
      (void)array->cell(row, "x");
    }
    return 0;
  }
  TRAINYARD_CHECK(std::ssize(array->to_floats()) == elements, "a number for each element");
  if (!array->type().u8()) return 0;
  TRAINYARD_CHECK(std::ssize(std::move(*array).take_bytes()) == elements, "a byte for each");
  return 0;
}
