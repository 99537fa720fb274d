#include "src/onnx/trained_parameters.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "src/base/check.h"
#include "src/base/text.h"
#include "src/onnx/importer_axes.h"
#include "src/onnx/onnx_file.h"

namespace trainyard::onnx {

Result<std::optional<TrainedParameters>> TrainedParameters::read(
    const std::map<std::string, std::string>& metadata) {
  const auto text = metadata.find(kTrainedParametersKey);
  if (text == metadata.end()) return std::optional<TrainedParameters>();
  const auto list = nlohmann::json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  const bool is_list = list.is_array() &&
                       std::ranges::all_of(list, [](const auto& name) { return name.is_string(); });
  if (!is_list) {
    return invalid_file(std::string("metadata ") + kTrainedParametersKey +
                        " is not a JSON list of names of initializers");
  }
  TrainedParameters parameters;
  for (const auto& name : list) parameters.names_.insert(name.get<std::string>());
  return std::optional(std::move(parameters));
}

Result<std::vector<Origin>> TrainedParameters::count(const std::string& initializer,
                                                     int64_t numbers) {
  const size_t begin = taken_.size();
  if (static_cast<uint64_t>(numbers) >= kFixed - begin) {
    return misfit("the parameters have more than " + std::to_string(kFixed) + " numbers");
  }
  if (numbers > 0) begins_[static_cast<Origin>(begin)] = initializer;
  taken_.resize(begin + static_cast<size_t>(numbers));
  std::vector<Origin> origins(static_cast<size_t>(numbers));
  for (size_t i = 0; i < origins.size(); ++i) origins[i] = static_cast<Origin>(begin + i);
  return origins;
}

const std::string& TrainedParameters::name_of(Origin origin) const {
  const auto behind = begins_.upper_bound(origin);
  TRAINYARD_CHECK(behind != begins_.begin() && origin < taken_.size(), "a number of no parameter");
  return std::prev(behind)->second;
}

Result<bool> TrainedParameters::take(const std::string& weight,
                                     const std::vector<Origin>& origins) {
  const auto trained = std::ranges::find_if(origins, [](Origin o) { return o != kFixed; });
  if (trained == origins.end()) return false;
  const auto refuse = [&](Origin of, const std::string& what) {
    return misfit("parameter " + quoted_value(name_of(of)) + " would be " + quoted_value(weight) +
                  ", " + what);
  };
  for (const Origin o : origins) {
    if (o == kFixed) return refuse(*trained, "which also has numbers that are fixed");
    if (taken_[o]) {
      return refuse(o,
                    "but is also used elsewhere, and layers share only the weights of linear "
                    "layers and embeddings");
    }
    taken_[o] = true;
  }
  return true;
}

namespace {

/// A parameter's name, split into parts from one of its ends: "enc_0.bias" gives "enc_", "0.",
/// "bias" from the front, and ".bias", "_0", "enc" from the back.
struct PartedName {
  std::vector<std::string> parts;
  bool frozen = false;
};
using Rules = std::vector<FreezeRule>;

/// Computes the shortest list of rules that freezes exactly the given names. Rules apply in order,
/// and each matches all names with the same first parts.
class RuleFolder {
 public:
  explicit RuleFolder(bool from_back) : from_back_(from_back) {}

  void add(const std::vector<std::string>& names, bool frozen) {
    for (const std::string& name : names) names_.push_back({parts_of(name), frozen});
  }
  Rules fold() {
    std::ranges::sort(names_, {}, &PartedName::parts);
    return fold(names_, 0).trained;
  }

 private:
  /// The shortest rules for a set of names in two cases: earlier rules train all of them
  /// (`trained`), or freeze all of them (`frozen`).
  struct Lists {
    Rules trained, frozen;
  };

  std::vector<std::string> parts_of(const std::string& name) const {
    std::vector<std::string> parts(1);
    for (const char c : name) {
      const bool separates = c == '_' || c == '/' || c == '.';
      if (separates && from_back_) parts.emplace_back();
      parts.back() += c;
      if (separates && !from_back_) parts.emplace_back();
    }
    if (from_back_) std::ranges::reverse(parts);
    return parts;
  }

  std::string pattern_of(const PartedName& name, size_t depth) const {
    std::string text;
    for (size_t i = 0; i < depth; ++i) {
      text = from_back_ ? name.parts[i] + text : text + name.parts[i];
    }
    if (depth == name.parts.size()) return text;
    return from_back_ ? "*" + text : text + "*";
  }

  Lists fold(std::span<const PartedName> names, size_t depth) const {
    const PartedName& first = names.front();
    const std::string pattern = pattern_of(first, depth);
    if (depth == first.parts.size()) {  // names are distinct, so only one can end here
      return first.frozen ? Lists{{{pattern, true}}, {}} : Lists{{}, {{pattern, false}}};
    }
    Lists lists;
    for (size_t begin = 0, end = 0; begin < names.size(); begin = end) {
      while (end < names.size() && names[end].parts[depth] == names[begin].parts[depth]) ++end;
      Lists part = fold(names.subspan(begin, end - begin), depth + 1);
      std::ranges::move(part.trained, std::back_inserter(lists.trained));
      std::ranges::move(part.frozen, std::back_inserter(lists.frozen));
    }
    // Use one rule for all names, followed by rules for the exceptions, if that is shorter. For a
    // whole layer (".*") equal length is enough.
    const size_t saved = pattern.ends_with(".*") ? 0 : 1;
    const auto with = [&](bool freeze, const Rules& others) {
      Rules all = {{pattern, freeze}};
      all.insert(all.end(), others.begin(), others.end());
      return all;
    };
    if (1 + lists.frozen.size() + saved <= lists.trained.size()) {
      lists.trained = with(true, lists.frozen);
    } else if (1 + lists.trained.size() + saved <= lists.frozen.size()) {
      lists.frozen = with(false, lists.trained);
    }
    return lists;
  }

  bool from_back_;
  std::vector<PartedName> names_;
};

}  // namespace

std::vector<FreezeRule> freeze_rules(const std::vector<std::string>& trained,
                                     const std::vector<std::string>& frozen) {
  if (frozen.empty()) return {};
  std::vector<Rules> lists;
  for (const bool from_back : {false, true}) {
    RuleFolder folder(from_back);
    folder.add(trained, false);
    folder.add(frozen, true);
    lists.push_back(folder.fold());
  }
  return lists[1].size() < lists[0].size() ? lists[1] : lists[0];
}

}  // namespace trainyard::onnx
