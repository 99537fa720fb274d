#include "src/planning/known_gpus.h"

#include <algorithm>
#include <cctype>

#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr double kMega = 1e6;
constexpr int64_t kMebi = int64_t{1} << 20;

// Sources: NVIDIA's data sheets and architecture white papers; for the memory, nvidia-smi with ECC
// as delivered. A row has the name, the model, the compute capability, the multiprocessors with
// their clock, the memory's clock and width, and the memory.
constexpr KnownGpu kKnown[] = {
    {"t4", {"Tesla T4", 7, 5, 40, 1590 * kMega, 5001 * kMega, 256}, 15360 * kMebi},
    {"rtx-2080-ti",
     {"NVIDIA GeForce RTX 2080 Ti", 7, 5, 68, 1545 * kMega, 7000 * kMega, 352},
     11264 * kMebi},
    {"a100-40gb",
     {"NVIDIA A100-SXM4-40GB", 8, 0, 108, 1410 * kMega, 1215 * kMega, 5120},
     40960 * kMebi},
    {"a100", {"NVIDIA A100-SXM4-80GB", 8, 0, 108, 1410 * kMega, 1593 * kMega, 5120}, 81920 * kMebi},
    {"rtx-3060",
     {"NVIDIA GeForce RTX 3060", 8, 6, 28, 1777 * kMega, 7501 * kMega, 192},
     12288 * kMebi},
    {"rtx-3090",
     {"NVIDIA GeForce RTX 3090", 8, 6, 82, 1695 * kMega, 9751 * kMega, 384},
     24576 * kMebi},
    {"a10g", {"NVIDIA A10G", 8, 6, 80, 1710 * kMega, 6251 * kMega, 384}, 23028 * kMebi},
    {"a10", {"NVIDIA A10", 8, 6, 72, 1695 * kMega, 6251 * kMega, 384}, 23028 * kMebi},
    {"l4", {"NVIDIA L4", 8, 9, 58, 2040 * kMega, 6251 * kMega, 192}, 23034 * kMebi},
    {"rtx-4090",
     {"NVIDIA GeForce RTX 4090", 8, 9, 128, 2520 * kMega, 10501 * kMega, 384},
     24564 * kMebi},
    {"l40s", {"NVIDIA L40S", 8, 9, 142, 2520 * kMega, 9001 * kMega, 384}, 46068 * kMebi},
    {"h100-pcie", {"NVIDIA H100 PCIe", 9, 0, 114, 1755 * kMega, 1593 * kMega, 5120}, 81559 * kMebi},
    {"h100", {"NVIDIA H100 80GB HBM3", 9, 0, 132, 1980 * kMega, 2619 * kMega, 5120}, 81559 * kMebi},
    {"h200", {"NVIDIA H200", 9, 0, 132, 1980 * kMega, 3201 * kMega, 6144}, 143771 * kMebi},
    {"b200", {"NVIDIA B200", 10, 0, 148, 1965 * kMega, 3996 * kMega, 8192}, 183359 * kMebi},
    {"rtx-5090",
     {"NVIDIA GeForce RTX 5090", 12, 0, 170, 2407 * kMega, 14001 * kMega, 512},
     32607 * kMebi},
};

/// Returns the letters and digits of a name, in lower case.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) plain += static_cast<char>(std::tolower(byte));
  }
  return plain;
}

std::string known_names() {
  std::string names = "all";
  for (const KnownGpu& known : kKnown) names += ", " + std::string(known.name);
  return names;
}

}  // namespace

std::span<const KnownGpu> known_gpus() { return kKnown; }

Result<std::vector<const KnownGpu*>> find_known_gpus(std::string_view names,
                                                     const std::string& field) {
  std::vector<const KnownGpu*> found;
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    const std::string_view name = names.substr(at, end - at);
    const std::string plain = plain_name(name);
    bool any = false;
    for (const KnownGpu& known : kKnown) {
      if (plain != "all" && plain != plain_name(known.name)) continue;
      any = true;
      if (std::ranges::find(found, &known) == found.end()) found.push_back(&known);
    }
    if (!any) {
      return field_error("GPU_UNKNOWN", field,
                         quoted_value(name) + " is not known, expected one of " + known_names());
    }
    at = end + 1;
  }
  return found;
}

}  // namespace trainyard
