#include "client/cli/job_file.h"

#include <array>

#include "client/cli/gguf_model.h"
#include "client/cli/peft_adapter.h"
#include "src/base/files.h"
#include "src/base/folder_files.h"
#include "src/base/glob.h"
#include "src/base/text.h"
#include "src/onnx/import_model.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

/// Adds the line and column of model.onnx to the error, like the spec's own errors have.
Error refused(const client::SpecFile& spec, Error error) {
  error.violations = {{"model.onnx", error.message}};
  error.message = "model.onnx: " + error.message;
  return spec.with_positions(std::move(error));
}

/// Converts the output of `model import` through the text that a user could have written.
Result<v1::ModelSpec> to_message(const onnx::ImportedModel& model) {
  ASSIGN_OR_RETURN(
      const spec::Document document,
      spec::Document::parse(onnx::layers_to_yaml(model.layers), "its layers as a job file"));
  std::vector<spec::Problem> problems;
  v1::ModelSpec message = spec::read_model(document, problems);
  if (!problems.empty()) return document.to_error(problems);
  return message;
}

/// If the recipe excludes the last layer's weights, that layer is a new head: its units then follow
/// from the data.
void free_head(const v1::InitialWeights& weights, v1::ModelSpec& model) {
  if (model.layers().empty()) return;
  const std::vector<std::string> left_out(weights.exclude().begin(), weights.exclude().end());
  v1::Layer& last = *model.mutable_layers()->rbegin();
  if (!matches_any(left_out, last.name() + ".weight")) return;
  if (last.has_gemm()) last.mutable_gemm()->clear_units();
  if (last.has_linear()) last.mutable_linear()->clear_units();
}

/// Freezes the parameters that the ONNX file does not train. These groups come before the recipe's
/// own, which can override them. With lora all weights are frozen anyway.
void freeze(const std::vector<onnx::FreezeRule>& rules, v1::Recipe& recipe) {
  if (rules.empty() || recipe.has_lora()) return;
  const v1::Recipe given = recipe;
  recipe.clear_parameter_groups();
  for (const onnx::FreezeRule& rule : rules) {
    v1::ParameterGroup& group = *recipe.add_parameter_groups();
    group.set_match(rule.match);
    group.set_freeze(rule.freeze);
  }
  recipe.mutable_parameter_groups()->MergeFrom(given.parameter_groups());
}

/// Returns whether the path is a folder, or a file with a typical ending of data files.
bool is_data(const fs::path& path) {
  static constexpr std::array<std::string_view, 20> kEndings = {
      ".csv", ".tsv", ".tab",     ".psv",     ".jsonl", ".ndjson",     ".txt",
      ".gz",  ".npz", ".npy",     ".parquet", ".xlsx",  ".xls",        ".pkl",
      ".tar", ".zip", ".feather", ".arrow",   ".xz",    ".safetensors"};
  std::error_code ec;
  const std::string name = path.string();
  return fs::is_directory(path, ec) ||
         (fs::exists(path, ec) && (is_image_path(name) || has_ending(name, kEndings)));
}

}  // namespace

Result<client::SpecFile> read_job_spec(const fs::path& path, std::span<const std::string> sets,
                                       std::span<const std::string> grids) {
  auto spec = client::read_spec_file(path, sets, grids);
  if (spec.ok() || !is_data(path)) return spec;
  // New users often pass their data instead of a job file.
  return make_error(ErrorCode::kInvalidArgument, "SPEC_IS_DATA",
                    path.string() + " is data, expected a job file; 'trainyard init " +
                        path.string() + "' writes one");
}

Status import_onnx(Session& session, TemporaryFolder& scratch, client::SpecFile& spec) {
  v1::ModelSpec& model = *spec.file.mutable_model();
  if (model.onnx().empty()) return {};
  const std::string file = model.onnx();
  const auto imported = onnx::import_model(spec.folder / file, {});
  if (!imported.ok()) return refused(spec, imported.error());
  const fs::path folder = scratch.path() / "onnx";
  if (Status s = onnx::write_imported(local_files(), *imported, folder); !s.ok()) {
    return std::move(s).error();
  }
  auto layers = to_message(*imported);
  if (!layers.ok()) return refused(spec, layers.error());
  v1::InitialWeights& weights = *spec.file.mutable_recipe()->mutable_initial_weights();
  free_head(weights, *layers);
  model.clear_onnx();
  model.MergeFrom(*layers);
  if (weights.job().empty() && weights.model().empty() && weights.path().empty()) {
    weights.set_path(file);
    spec.imported_weights = folder / onnx::kWeightsFile;
  }
  freeze(imported->freezes, *spec.file.mutable_recipe());
  session.hint(safe_text(file) + ": " + std::to_string(imported->layers.size()) + " layers, " +
               grouped(imported->parameter_count) + " parameters");
  for (const std::string& note : imported->notes) session.hint("  " + safe_text(note));
  if (!imported->freezes.empty()) {
    session.hint("  recipe.parameter_groups freezes the weights that the file does not train.");
  }
  return {};
}

Status import_models(Session& session, TemporaryFolder& scratch, client::SpecFile& spec,
                     WeightsNeed need) {
  if (Status s = import_onnx(session, scratch, spec); !s.ok()) return s;
  if (Status s = import_pretrained(session, scratch, spec, need); !s.ok()) return s;
  Status tokenizer = unpack_tokenizer(spec.folder, scratch, *spec.file.mutable_dataset());
  if (!tokenizer.ok()) return spec.with_positions(std::move(tokenizer).error());
  return import_adapter(session, scratch, spec);
}

Result<client::SpecFile> read_job_file(Session& session, const fs::path& path,
                                       std::span<const std::string> sets, TemporaryFolder& scratch,
                                       std::span<const std::string> grids) {
  ASSIGN_OR_RETURN(client::SpecFile spec, read_job_spec(path, sets, grids));
  if (Status s = import_models(session, scratch, spec); !s.ok()) return std::move(s).error();
  if (Status s = check_has_weights(spec); !s.ok()) return std::move(s).error();
  return spec;
}

}  // namespace trainyard::cli
