#include "src/runtime/open_backend.h"

#include <charconv>

#include "src/base/cores.h"
#include "src/base/text.h"
#include "src/runtime/cuda_module.h"

namespace trainyard {

Result<std::unique_ptr<Backend>> open_backend(std::string_view device, int threads) {
  if (device == "devices/cpu") return make_cpu_backend(threads > 0 ? threads : usable_cores());
  constexpr std::string_view kGpu = "devices/gpu-";
  if (device.starts_with(kGpu)) {
    const std::string_view digits = device.substr(kGpu.size());
    int index = -1;
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (ec == std::errc() && end == digits.data() + digits.size() && index >= 0) {
      return open_cuda_backend(cuda_module_path(), index);
    }
  }
  return make_error(
      ErrorCode::kNotFound, "DEVICE_NOT_FOUND",
      "device " + quoted_value(device) + " is not known, expected devices/cpu or devices/gpu-N");
}

}  // namespace trainyard
