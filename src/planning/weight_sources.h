// src/planning/weight_sources.h: finds the tensors of a file that make a tensor of the model, also
// if another library has written the file (src/models/naming).
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/weights_file.h"
#include "src/graph/graph.h"
#include "src/models/naming/naming.h"

namespace trainyard {

/// The tensors of a file that make one tensor of the model.
struct WeightSource {
  std::vector<size_t> tensors;  // their indices in the file; several for Arrangement::kStacked
  Arrangement arrangement = Arrangement::kSame;
};

/// Returns the shape that the tensors have once they are arranged for the model's tensor of shape
/// `needed`. It differs from `needed` if they do not fit.
Shape arranged_shape(const WeightSource& source, std::span<const FileTensor> file,
                     const Shape& needed);

class WeightSources {
 public:
  /// `by_name`: the index of each tensor of the file by its name. Chooses the naming scheme under
  /// which most tensors of the model are found; the model's own names if none finds more.
  WeightSources(std::map<std::string, size_t> by_name, std::span<const TensorInfo> model);

  std::optional<WeightSource> find(std::string_view ours) const { return find(scheme_, ours); }
  /// Returns the chosen scheme; null if the file has the model's own names.
  const NamingScheme* scheme() const { return scheme_; }
  /// Returns the first scheme whose names the file has, whether or not the model has its network;
  /// null if there is none.
  const NamingScheme* recognized() const;
  /// Returns why a tensor of the file has no counterpart in any model; empty if it could have one.
  std::string_view why_unneeded(std::string_view theirs) const;

 private:
  std::optional<size_t> find_name(const NamingScheme& scheme, const std::string& name) const;
  std::optional<WeightSource> find_by_row(const NamingScheme& scheme, const NameRow& row,
                                          std::string_view ours) const;
  std::optional<WeightSource> find_adapter(const NamingScheme& scheme, std::string_view ours) const;
  std::optional<WeightSource> find_saved(const NamingScheme& scheme, std::string_view ours) const;
  std::optional<size_t> find_joined(const NamingScheme& scheme, std::string_view ours) const;
  std::optional<WeightSource> find(const NamingScheme* scheme, std::string_view ours) const;
  bool is_of(const NamingScheme& scheme) const;

  std::map<std::string, size_t> by_name_;
  std::map<std::string, size_t> by_unjoined_name_;  // without ambiguous names
  const NamingScheme* scheme_ = nullptr;
};

}  // namespace trainyard
