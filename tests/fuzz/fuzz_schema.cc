// schema.json of a typed dataset. What is read is written in a way that reads as the same.
#include "src/base/check.h"
#include "src/data/schema.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const auto schema = DatasetSchema::from_json(text_of(data, size));
  if (!schema.ok()) return 0;
  const std::string text = schema->to_json();
  const auto again = DatasetSchema::from_json(text);
  TRAINYARD_CHECK(again.ok(), "what is written is read: " + again.error().message);
  TRAINYARD_CHECK(again->to_json() == text, "and is the same");
  return 0;
}
