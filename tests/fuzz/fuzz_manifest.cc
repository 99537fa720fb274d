// Fuzzes the JSON texts that the programs write themselves and read back from disks and archives:
// the state of a checkpoint, the rates of a device.
#include "src/checkpoint/checkpoint_state.h"
#include "src/forecast/rates.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const std::string_view text = text_of(data, size);
  if (const auto state = parse_state_json(text); state.ok()) {
    TRAINYARD_CHECK(to_state_json(*state) == text, "an accepted state is as it was written");
  }
  (void)parse_rates(text);
  return 0;
}
