// Fuzzes schema.json of a typed dataset. A schema that was read must be the same after writing and
// reading it again.
#include <nlohmann/json.hpp>

#include "src/base/check.h"
#include "src/base/json_fields.h"
#include "src/data/schema.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const auto json = parse_json(text_of(data, size), "schema", "DATASET_INVALID");
  if (!json.ok()) return 0;
  const auto schema = DatasetSchema::from_json(*json);
  if (!schema.ok()) return 0;
  const nlohmann::json written = schema->to_json();
  const auto again = DatasetSchema::from_json(written);
  TRAINYARD_CHECK(again.ok(), "what is written is read: " + again.error().message);
  TRAINYARD_CHECK(again->to_json() == written, "and is the same");
  return 0;
}
