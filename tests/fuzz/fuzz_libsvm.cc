// Fuzzes sparse rows in LIBSVM format.
#include "src/base/check.h"
#include "src/data/typed_dataset.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const MemoryFile input(data, size);
  const auto read = read_libsvm_dataset(input.path(), {});
  if (!read.ok()) return 0;
  const TypedRows& rows = read->train;
  TRAINYARD_CHECK(std::ssize(rows.numeric) == rows.rows * read->schema.numeric_columns(),
                  "a number for each cell");
  TRAINYARD_CHECK(std::ssize(rows.target_class) + std::ssize(rows.target_numeric) == rows.rows,
                  "a label for each row");
  return 0;
}
