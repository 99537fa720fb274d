// tests/fuzz/fuzz.h: what every target defines: libFuzzer calls it with inputs that it makes up,
// and replay_main.cc with those that are kept in corpus/. It must come back from any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace trainyard {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace trainyard
