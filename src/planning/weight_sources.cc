#include "src/planning/weight_sources.h"

#include <algorithm>
#include <set>

#include "src/base/glob.h"
#include "src/models/lora.h"

namespace trainyard {

namespace {

// PyTorch counts the batches that batch normalization has seen.
constexpr UnneededTensors kCounter = {"*num_batches_tracked", "a counter"};

/// Maps unjoined names to the file's tensors. Leaves out names that are ambiguous.
std::map<std::string, size_t> by_unjoined_names(const std::map<std::string, size_t>& by_name) {
  std::map<std::string, size_t> unjoined;
  std::set<std::string> ambiguous;
  for (const auto& [name, index] : by_name) {
    if (!unjoined.emplace(unjoined_name(name), index).second) ambiguous.insert(unjoined_name(name));
  }
  for (const std::string& name : ambiguous) unjoined.erase(name);
  return unjoined;
}

/// Returns the shape of tensors that are joined along their first axis; that of the first tensor if
/// they do not fit together.
Shape stacked_shape(const WeightSource& source, std::span<const FileTensor> file) {
  const Shape& first = file[source.tensors.front()].shape;
  std::vector<int64_t> dims = first.dims();
  if (dims.empty()) return first;
  for (const size_t index : std::span(source.tensors).subspan(1)) {
    const std::vector<int64_t>& other = file[index].shape.dims();
    if (other.size() != dims.size() || !std::equal(dims.begin() + 1, dims.end(), other.begin() + 1))
      return first;
    dims[0] += other[0];
  }
  return Shape(dims);
}

bool has_first_rows(const Shape& theirs, const Shape& needed) {
  return theirs.rank() == needed.rank() && theirs.rank() > 0 && theirs[0] > needed[0] &&
         std::equal(theirs.dims().begin() + 1, theirs.dims().end(), needed.dims().begin() + 1);
}

}  // namespace

Shape arranged_shape(const WeightSource& source, std::span<const FileTensor> file,
                     const Shape& needed) {
  const Shape& theirs = file[source.tensors.front()].shape;
  switch (source.arrangement) {
    case Arrangement::kSame:
      return theirs;
    case Arrangement::kTransposed:
      return theirs.rank() == 2 ? Shape{theirs[1], theirs[0]} : theirs;
    case Arrangement::kStacked:
      return stacked_shape(source, file);
    case Arrangement::kReshaped:
      return theirs.fits() && theirs.elements() == needed.elements() ? needed : theirs;
    case Arrangement::kFirstRows:
      return has_first_rows(theirs, needed) ? needed : theirs;
  }
  return theirs;
}

WeightSources::WeightSources(std::map<std::string, size_t> by_name,
                             std::span<const TensorInfo> model)
    : by_name_(std::move(by_name)), by_unjoined_name_(by_unjoined_names(by_name_)) {
  const auto count_found = [&](const NamingScheme* scheme) {
    return std::ranges::count_if(
        model, [&](const TensorInfo& t) { return find(scheme, t.name).has_value(); });
  };
  const NamingScheme* best = nullptr;
  auto most = count_found(nullptr);
  for (const NamingScheme& scheme : naming_schemes()) {
    if (!is_of(scheme)) continue;
    if (const auto count = count_found(&scheme); count > most) {
      most = count;
      best = &scheme;
    }
  }
  scheme_ = best;
}

/// Returns whether the file may have the names of this scheme.
bool WeightSources::is_of(const NamingScheme& scheme) const {
  const auto has = [&](const NamingScheme& s) {
    return std::ranges::any_of(by_name_,
                               [&](const auto& entry) { return has_mark(s, entry.first); });
  };
  if (!scheme.marks.empty()) return has(scheme);
  // A scheme without marks has no rows that say how a tensor is arranged. It must not take the
  // tensors of a library that has them transposed.
  return std::ranges::none_of(naming_schemes(), [&](const NamingScheme& other) {
    const bool transposes = std::ranges::any_of(
        other.rows, [](const NameRow& row) { return row.arrangement == Arrangement::kTransposed; });
    return transposes && has(other);
  });
}

const NamingScheme* WeightSources::recognized() const {
  const auto& schemes = naming_schemes();
  const auto it = std::ranges::find_if(
      schemes, [&](const NamingScheme& s) { return !s.marks.empty() && is_of(s); });
  return it == schemes.end() ? nullptr : &*it;
}

std::string_view WeightSources::why_unneeded(std::string_view theirs) const {
  if (glob_match(kCounter.pattern, theirs)) return kCounter.reason;
  if (scheme_ == nullptr) return {};
  for (const UnneededTensors& tensors : scheme_->unneeded) {
    if (glob_match(tensors.pattern, theirs)) return tensors.reason;
  }
  return {};
}

std::optional<size_t> WeightSources::find_name(const NamingScheme& scheme,
                                               const std::string& name) const {
  if (const auto it = by_name_.find(name); it != by_name_.end()) return it->second;
  for (const std::string_view prefix : scheme.prefixes) {
    const auto it = by_name_.find(std::string(prefix) + name);
    if (it != by_name_.end()) return it->second;
  }
  return std::nullopt;
}

std::optional<WeightSource> WeightSources::find_by_row(const NamingScheme& scheme,
                                                       const NameRow& row,
                                                       std::string_view ours) const {
  WeightSource source{{}, row.arrangement};
  for (const std::string& name : names_by_row(row, ours)) {
    const std::optional<size_t> index = find_name(scheme, name);
    if (!index) return std::nullopt;
    source.tensors.push_back(*index);
  }
  if (source.tensors.empty()) return std::nullopt;
  return source;
}

// An adapter's own copy of a whole layer (PEFT's modules_to_save) replaces that of the base.
std::optional<WeightSource> WeightSources::find_saved(const NamingScheme& scheme,
                                                      std::string_view ours) const {
  const auto found = library_names(scheme, ours);
  if (!found || found->names.size() != 1) return std::nullopt;
  const auto it = by_name_.find(std::string(kPeftPrefix) + found->names.front());
  if (it == by_name_.end()) return std::nullopt;
  return WeightSource{{it->second}, found->arrangement};
}

// PEFT names an adapter's matrices by the modules of the model that it wraps.
std::optional<WeightSource> WeightSources::find_adapter(const NamingScheme& scheme,
                                                        std::string_view ours) const {
  const std::string_view suffix = ours.ends_with(kLoraA) ? kLoraA : kLoraB;
  constexpr std::string_view kWeight = ".weight";
  const std::string layer(ours.substr(0, ours.size() - suffix.size()));
  const auto found = library_names(scheme, layer + std::string(kWeight));
  if (!found || found->names.size() != 1) return std::nullopt;
  const std::string& weight = found->names.front();
  const auto it =
      by_name_.find(std::string(kPeftPrefix) + weight.substr(0, weight.size() - kWeight.size()) +
                    std::string(suffix));
  if (it == by_name_.end()) return std::nullopt;
  return WeightSource{{it->second}};
}

std::optional<size_t> WeightSources::find_joined(const NamingScheme& scheme,
                                                 std::string_view ours) const {
  const auto find_unjoined = [&](std::string_view prefix) {
    return by_unjoined_name_.find(unjoined_name(std::string(prefix) + std::string(ours)));
  };
  auto it = find_unjoined("");
  for (const std::string_view prefix : scheme.prefixes) {
    if (it == by_unjoined_name_.end()) it = find_unjoined(prefix);
  }
  if (it == by_unjoined_name_.end()) return std::nullopt;
  return it->second;
}

std::optional<WeightSource> WeightSources::find(const NamingScheme* scheme,
                                                std::string_view ours) const {
  if (scheme != nullptr) {
    if (is_lora(ours)) return find_adapter(*scheme, ours);
    if (auto source = find_saved(*scheme, ours)) return source;
    for (const NameRow& row : scheme->rows) {
      if (auto source = find_by_row(*scheme, row, ours)) return source;
    }
    if (scheme->joins_differently) {
      if (const auto index = find_joined(*scheme, ours)) return WeightSource{{*index}};
    }
  }
  const auto it = by_name_.find(std::string(ours));
  if (it == by_name_.end()) return std::nullopt;
  return WeightSource{{it->second}};
}

}  // namespace trainyard
