// Fuzzes the state of a checkpoint, a JSON text that the worker writes and reads back.
#include "src/checkpoint/checkpoint_state.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const std::string_view text = text_of(data, size);
  if (const auto state = parse_state_json(text); state.ok()) {
    TRAINYARD_CHECK(to_state_json(*state) == text, "an accepted state is as it was written");
  }
  return 0;
}
