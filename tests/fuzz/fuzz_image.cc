// Fuzzes JPEG and PNG files.
#include "src/base/check.h"
#include "src/data/image/image_file.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;               // NOLINT
  constexpr int64_t kPixelsMax = 1 << 18;  // larger images are slow and reach no other code
  const std::string_view bytes = text_of(data, size);
  const auto info = read_image_info(bytes, "image");
  if (!info.ok() || info->height * info->width > kPixelsMax) return 0;
  for (const int64_t channels : {1, 3}) {
    const auto pixels = decode_image(bytes, channels, "image");
    if (!pixels.ok()) continue;
    TRAINYARD_CHECK(pixels->height == info->height && pixels->width == info->width &&
                        std::ssize(pixels->values) == info->height * info->width * channels,
                    "the size that was told");
  }
  const auto deep = decode_deep_image(bytes, "image");
  TRAINYARD_CHECK(!deep.ok() || std::ssize(deep->values) == info->height * info->width,
                  "one sample for each pixel");
  return 0;
}
