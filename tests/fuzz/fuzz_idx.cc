// Fuzzes IDX images and labels.
#include "src/base/check.h"
#include "src/data/arrays/idx.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const std::string_view bytes = text_of(data, size);
  const auto images = read_idx_images(*open_memory_source(bytes, "images"), "images", 1 << 20);
  if (images.ok()) {
    const int64_t elements = images->rows * images->image.elements();
    TRAINYARD_CHECK(std::ssize(images->u8) + std::ssize(images->f32) == elements, "all of them");
  }
  (void)read_idx_labels(*open_memory_source(bytes, "labels"), "labels");
  return 0;
}
