#include "src/onnx/exported_kinds.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace trainyard::onnx {
namespace {

constexpr const char* kKindKey = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr const char* kFoldedKey = "pkg.onnxscript.optimizer.folded_from";

/// Returns the names in a list as Python prints it: "['a.weight', 'val_3']".
std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  while (true) {
    const size_t begin = list.find('\'');
    if (begin == std::string_view::npos) return names;
    const size_t end = list.find('\'', begin + 1);
    if (end == std::string_view::npos) return names;
    names.emplace_back(list.substr(begin + 1, end - begin - 1));
    list.remove_prefix(end + 1);
  }
}

// The file no longer tells the kind of a value that was replaced, so its name has to. A parameter
// whose name is unusual stays fixed, which the import says; a weight of a layer is trained anyway.
bool comes_from_parameter(const std::vector<std::string>& sources) {
  constexpr std::string_view kEnds[] = {"weight", "bias",  "gamma",     "beta",      "scale",
                                        "token",  "table", "embedding", "embeddings"};
  return std::ranges::any_of(sources, [&](const std::string& name) {
    return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
  });
}

}  // namespace

std::optional<ExportedKinds> ExportedKinds::read(const GraphProto& graph) {
  ExportedKinds kinds;
  bool tells = false;
  for (const ValueProto& value : graph.values) {
    const auto kind = value.metadata.find(kKindKey);
    const auto folded = value.metadata.find(kFoldedKey);
    tells = tells || kind != value.metadata.end();
    const bool is_parameter =
        kind != value.metadata.end()
            ? kind->second == "PARAMETER"
            : folded != value.metadata.end() && comes_from_parameter(names_in(folded->second));
    if (is_parameter) kinds.parameters_.insert(value.name);
  }
  return tells ? std::optional(std::move(kinds)) : std::nullopt;
}

}  // namespace trainyard::onnx
