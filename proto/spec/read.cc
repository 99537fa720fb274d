#include "proto/spec/read.h"

#include "proto/spec/dataset_format.h"
#include "proto/spec/message.h"

namespace trainyard::spec {

Document read_document(std::string_view text, std::string name, std::span<const std::string> sets,
                       std::span<const std::string> grids, std::vector<Problem>& problems) {
  Document document = Document::parse(text, std::move(name), problems);
  for (size_t i = 0; i < sets.size() && problems.empty(); ++i) document.set(sets[i], problems);
  for (size_t i = 0; i < grids.size() && problems.empty(); ++i) {
    document.add_to_grid(grids[i], problems);
  }
  return document;
}

namespace {

constexpr const char* kFoldField = "recipe.split.fold";
constexpr int64_t kFoldsExpandedMax = 1000;  // more than any engine accepts, which refuses them

/// Lets the dataset keep the columns by which the recipe splits rows, so that a spec names them
/// once. A table that names others itself stays as it is.
template <typename Table>
void keep_split_columns(const v1::RowSplit& split, Table& table) {
  if (table.group().empty()) table.set_group(split.group());
  if (table.time().empty()) table.set_time(split.time());
}

void keep_split_columns(v1::JobFile& file) {
  const v1::RowSplit& split = file.recipe().split();
  v1::DatasetFile& dataset = *file.mutable_dataset();
  if (dataset.has_csv()) keep_split_columns(split, *dataset.mutable_csv());
  if (dataset.has_jsonl()) keep_split_columns(split, *dataset.mutable_jsonl());
}

/// Makes a job with folds but without a fold an array with a member for each fold. Its spec by
/// itself is the job of the first one.
void add_folds(v1::JobFile& file) {
  const v1::RowSplit& split = file.recipe().split();
  if (split.folds() < 2 || split.folds() > kFoldsExpandedMax || split.has_fold()) return;
  const bool other_array = file.has_array() && file.array().grid().empty();
  if (other_array) return;  // the server checks that its members name their folds
  v1::ArraySpec& array = *file.mutable_array();
  v1::ArrayValues& folds = (*array.mutable_grid())[kFoldField];
  if (folds.values().empty()) {
    for (int64_t fold = 1; fold <= split.folds(); ++fold) folds.add_values(std::to_string(fold));
  }
  file.mutable_recipe()->mutable_split()->set_fold(1);
}

/// Rows of text are read by the model's tokenizer, unless the table names another one.
template <typename Format>
void name_tokenizer_of(const std::string& model, Format& table) {
  const bool has_own =
      table.tokenizer() != v1::TOKENIZER_UNSPECIFIED || !table.tokenizer_of().empty();
  if (table.text_size() > 0 && !has_own) table.set_tokenizer_of(model);
}

/// The texts of a job that begins with a pretrained model are read by its tokenizer.
void name_tokenizer(v1::JobFile& file) {
  const std::string& model = file.model().pretrained();
  if (model.empty() || model.ends_with(".safetensors")) return;  // a file of weights alone
  v1::DatasetFile& dataset = *file.mutable_dataset();
  if (dataset.has_csv()) name_tokenizer_of(model, *dataset.mutable_csv());
  if (dataset.has_jsonl()) name_tokenizer_of(model, *dataset.mutable_jsonl());
  if (dataset.has_documents() && dataset.documents().tokenizer().empty()) {
    dataset.mutable_documents()->set_tokenizer(model);
  }
}

}  // namespace

v1::JobFile read_job(const Document& document, std::vector<Problem>& problems) {
  v1::JobFile file;
  read_message(document.root(), "", file, problems);
  for (const auto& [field, says] : required_fields(*v1::JobFile::descriptor())) {
    if (document.root().find(field->name()) != nullptr) continue;
    problems.push_back({document.root().at, "FIELD_REQUIRED", field->name(), says});
  }
  if (file.has_dataset()) {
    keep_split_columns(file);
    name_tokenizer(file);
    check_dataset_file(file.dataset(), "dataset", &document, problems);
  }
  add_folds(file);
  return file;
}

v1::DatasetFile read_dataset(const Document& document, std::vector<Problem>& problems) {
  v1::DatasetFile dataset;
  const bool is_job =
      document.root().find("model") != nullptr || document.root().find("dataset") != nullptr;
  if (is_job) {
    v1::JobFile job;
    read_message(document.root(), "", job, problems);
    if (job.has_dataset()) {
      keep_split_columns(job);
      name_tokenizer(job);
    }
    dataset = job.dataset();
  } else {
    read_message(document.root(), "", dataset, problems);
  }
  check_dataset_file(dataset, is_job ? "dataset" : "", &document, problems);
  return dataset;
}

v1::ModelSpec read_model(const Document& document, std::vector<Problem>& problems) {
  v1::ModelSpec model;
  read_message(document.root(), "model", model, problems);
  return model;
}

v1::ArraySpec read_array(const Document& document, std::vector<Problem>& problems) {
  v1::ArraySpec array;
  read_message(document.root(), "array", array, problems);
  return array;
}

v1::JobSpec job_spec(const v1::JobFile& file) {
  v1::JobSpec spec;
  if (!brings_data(file.dataset())) spec.mutable_dataset()->set_name(file.dataset().name());
  *spec.mutable_model() = file.model();
  *spec.mutable_recipe() = file.recipe();
  if (file.has_resources()) *spec.mutable_resources() = file.resources();
  spec.set_priority(file.priority());
  *spec.mutable_labels() = file.labels();
  *spec.mutable_after() = file.after();
  return spec;
}

bool has_weights_file(const v1::Recipe& recipe) {
  const v1::InitialWeights& weights = recipe.initial_weights();
  return !weights.path().empty() && weights.job().empty() && weights.model().empty();
}

}  // namespace trainyard::spec
