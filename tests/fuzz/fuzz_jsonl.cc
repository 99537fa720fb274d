// Fuzzes tables of JSON objects, one per line, and the dates in their cells.
#include "src/data/table/date.h"
#include "src/data/table/json_lines.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const auto source = open_memory_source(text_of(data, size), "data");
  JsonLinesTable table(*source, "data", {"a"});
  std::vector<std::string_view> cells;
  int64_t line = 0;
  while (true) {
    const auto more = table.next(cells);
    if (!more.ok() || !*more) return 0;
    TRAINYARD_CHECK(table.line() > line, "rows come in order");
    line = table.line();
    TRAINYARD_CHECK(cells.size() == table.names().size(), "a cell for each column");
    for (const std::string_view cell : cells) {
      const auto date = parse_date(cell, DateOrder::kYearFirst);
      TRAINYARD_CHECK(!date || (date->seconds >= 0 && date->seconds < 86'401), "a time of a day");
    }
  }
}
