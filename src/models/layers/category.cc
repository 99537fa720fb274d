// The layer that maps a categorical column of a table to learned vectors.
#include <algorithm>
#include <cmath>

#include "src/base/text.h"
#include "src/models/layer.h"

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

// fastai's value. It is small so that the row for missing and unknown categories, which may never
// be trained, stays close to 0. fastai also truncates the distribution at two standard deviations.
constexpr double kInitialStd = 0.01;

Error column_error(const LayerBuilder& b, const ResolvedLayer& layer, const std::string& column) {
  const std::string description = no_column(column, b.interface());
  Error e = field_error("FIELD_UNKNOWN", layer.path + ".category_embedding.column", description);
  e.message = layer.where + ": column: " + description;
  return e;
}

// Converts the codes of the column, [N, 1], to indices [N] of the table's rows.
Outputs build_category_embedding(LayerBuilder& b, const ResolvedLayer& layer,
                                 std::span<const TensorId> inputs) {
  const std::vector<CategoricalColumn>& columns = b.interface().categories;
  if (inputs[0] != b.input()) {
    return LayerBuilder::shape_error(layer,
                                     "reads the codes of its column, expected inputs: [input]");
  }
  const std::string name = layer.attributes.get_string("column", "");
  const auto column = std::ranges::find(columns, name, &CategoricalColumn::name);
  if (column == columns.end()) return column_error(b, layer, name);

  // Codes come after the numeric columns.
  const int64_t codes = b.interface().input[0] - std::ssize(columns);
  const int64_t at = codes + (column - columns.begin());
  const auto list = [](int64_t v) { return std::vector<int64_t>{v}; };
  ASSIGN_OR_RETURN(
      TensorId index,
      b.add_node(layer, layer.name + "/code", "Slice",
                 {{"starts", list(at)}, {"ends", list(at + 1)}, {"axes", list(1)}}, {inputs[0]}));
  ASSIGN_OR_RETURN(index, b.add_node(layer, layer.name + "/rows", "Reshape",
                                     {{"shape", list(b.options().batch_size)}}, {index}));
  ASSIGN_OR_RETURN(index,
                   b.add_node(layer, layer.name + "/index", "Cast", {{"to", "I32"}}, {index}));
  const int64_t width =
      layer.attributes.get_int("embedding_dim", category_embedding_dim(column->count));
  ASSIGN_OR_RETURN(const TensorId table,
                   b.add_parameter(layer, "weight", Shape{column->count + 1, width},
                                   {Initializer::Kind::kNormal, 0,
                                    layer.attributes.get_float("initializer_std", kInitialStd)}));
  ASSIGN_OR_RETURN(const TensorId y, b.add_node(layer, layer.name, "Gather", {}, {table, index}));
  return {{y}};
}

}  // namespace

int64_t category_embedding_dim(int64_t categories) {
  const double rows = static_cast<double>(categories) + 1;
  return std::min<int64_t>(600, std::llround(1.6 * std::pow(rows, 0.56)));
}

std::string no_column(const std::string& name, const ModelInterface& interface) {
  std::vector<std::string> names;
  for (const CategoricalColumn& column : interface.categories) names.push_back(column.name);
  std::string text = quoted_value(name) + " is not a categorical column";
  if (const auto nearest = nearest_name(name, names)) {
    return text + ", did you mean " + quoted_value(*nearest) + "?";
  }
  constexpr size_t kShownMax = 8;
  for (size_t i = 0; i < std::min(names.size(), kShownMax); ++i) {
    text += (i > 0 ? ", " : ", expected one of ") + quoted_value(names[i]);
  }
  return text + (names.size() > kShownMax ? ", ..." : "");
}

ModelInterface ModelInterface::with_category_codes() const {
  ModelInterface result = *this;
  int64_t features = input[0];
  for (const CategoricalColumn& column : categories) features -= column.count;
  result.input = Shape{features + std::ssize(categories)};
  result.category_codes = true;
  return result;
}

std::vector<LayerKind> category_layers() {
  AttributeRule column = text_rule("column");
  column.required = true;
  return {{.op = "CategoryEmbedding",
           .field = "category_embedding",
           .attributes = {column, integer_rule("embedding_dim", false, 1, kChannelsMax),
                          real_rule("initializer_std", false, {.max = 1000, .min_excluded = true})},
           .build = build_category_embedding}};
}

}  // namespace trainyard
