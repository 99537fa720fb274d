#include "src/checkpoint/weights_index.h"

#include <nlohmann/json.hpp>
#include <set>

#include "src/base/files.h"
#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr int64_t kIndexBytesMax = 64 << 20;

Error index_error(const std::string& name, const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID", name + ": " + what);
}

bool is_plain_name(const std::string& name) {
  const std::filesystem::path path(name);
  return name.ends_with(".safetensors") && path.filename() == path;
}

}  // namespace

Result<WeightsIndex> WeightsIndex::read(const std::filesystem::path& path) {
  using Json = nlohmann::json;
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kIndexBytesMax));
  WeightsIndex index;
  index.name = path.filename().string();
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty()) {
    return index_error(index.name, "has no weight_map, which names the file of each tensor");
  }
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      return index_error(index.name, "weight_map: the file of tensor " + quoted_value(tensor) +
                                         " is " + quoted_value(file.dump(-1, ' ', true)) +
                                         ", expected the name of a safetensors file beside it");
    }
    files.insert(file.get<std::string>());
  }
  index.files.assign(files.begin(), files.end());
  for (const auto& [tensor, file] : map->items()) {
    const auto at = files.find(file.get<std::string>());
    index.of_tensor[tensor] = static_cast<size_t>(std::distance(files.begin(), at));
  }
  if (const auto total = json.value(Json::json_pointer("/metadata/total_size"), Json());
      total.is_number_unsigned()) {
    index.total_bytes = total.get<int64_t>();
  }
  return index;
}

Status WeightsIndex::check(std::span<const std::string> tensors, std::span<const size_t> shards,
                           int64_t bytes) const {
  std::map<std::string_view, size_t> found;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [first, is_new] = found.emplace(tensors[i], shards[i]);
    if (is_new) continue;
    return index_error(name, "tensor " + quoted_value(tensors[i]) + " is in two files, " +
                                 files[first->second] + " and " + files[shards[i]]);
  }
  for (const auto& [tensor, shard] : found) {
    const auto listed = of_tensor.find(std::string(tensor));
    if (listed == of_tensor.end()) {
      return index_error(name, "does not list the tensor " + quoted_value(tensor) + ", which " +
                                   files[shard] + " has");
    }
    if (listed->second != shard) {
      return index_error(name, "says that tensor " + quoted_value(tensor) + " is in " +
                                   files[listed->second] + ", but it is in " + files[shard]);
    }
  }
  for (const auto& [tensor, file] : of_tensor) {
    if (found.contains(tensor)) continue;
    return index_error(name, "says that tensor " + quoted_value(tensor) + " is in " + files[file] +
                                 ", which does not have it");
  }
  if (total_bytes && *total_bytes != bytes) {
    return index_error(name, "says that the tensors have " + std::to_string(*total_bytes) +
                                 " bytes (metadata.total_size), but the files have " +
                                 std::to_string(bytes));
  }
  return {};
}

}  // namespace trainyard
