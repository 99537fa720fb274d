// Fuzzes CSV records, plain and in gzip.
#include "src/base/check.h"
#include "src/data/table/csv_reader.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  if (size == 0) return 0;
  const std::string_view text = text_of(data + 1, size - 1);
  const auto source = open_memory_source(text, "data");
  CsvReader reader(*source, ",;\t|"[data[0] % 4], "data");
  std::vector<std::string_view> fields;
  int64_t line = 0;
  while (true) {
    const auto more = reader.next(fields);
    if (!more.ok() || !*more) return 0;
    TRAINYARD_CHECK(reader.line() > line && !fields.empty(), "records come in order");
    line = reader.line();
    size_t bytes = 0;
    for (const std::string_view field : fields) bytes += field.size();
    TRAINYARD_CHECK(source->compressed() || bytes <= text.size(), "fields are parts of the text");
  }
}
