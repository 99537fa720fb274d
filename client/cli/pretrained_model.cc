#include "client/cli/pretrained_model.h"

#include "client/cli/gguf_model.h"
#include "src/pretrained/pretrained_folder.h"

namespace trainyard::cli {
namespace {

constexpr const char* kField = "model.pretrained";

/// Adds the line and column of model.pretrained to the error, like the spec's own errors have.
Error refused_folder(const client::SpecFile& spec, Error error) {
  error.violations = {{kField, error.message}};
  error.message = std::string(kField) + ": " + error.message;
  return spec.with_positions(std::move(error));
}

/// Converts the network through the text that a user could have written.
Result<v1::ModelSpec> preset_message(const ModelSpec& network) {
  ASSIGN_OR_RETURN(const spec::Document document,
                   spec::Document::parse(network_to_yaml(network), "its network as a job file"));
  std::vector<spec::Problem> problems;
  v1::ModelSpec message = spec::read_model(document, problems);
  if (!problems.empty()) return document.to_error(problems);
  return message;
}

void show_folder(Session& session, const std::string& name, const PretrainedFolder& folder,
                 bool has_weights) {
  session.hint(safe_text(name) + ": " + folder.model.title + ", " +
               grouped(folder.model.parameter_count()) + " parameters" +
               (folder.model.dtype.empty() ? "" : " in " + folder.model.dtype) +
               (has_weights ? "" : ", without weights: only a plan is possible"));
  for (const std::string& note : folder.model.notes) session.hint("  " + safe_text(note));
}

bool has_network(const v1::ModelSpec& model) {
  return model.preset_case() != v1::ModelSpec::PRESET_NOT_SET || model.layers_size() > 0;
}

/// Returns the recipe's initial weights if they name no source of their own; else null.
v1::InitialWeights* free_weights(client::SpecFile& spec) {
  v1::InitialWeights& weights = *spec.file.mutable_recipe()->mutable_initial_weights();
  const bool is_free = weights.job().empty() && weights.model().empty() && weights.path().empty();
  return is_free ? &weights : nullptr;
}

/// A file of weights, for the network that stands beside it.
Status use_weights_file(const std::string& name, client::SpecFile& spec) {
  v1::ModelSpec& model = *spec.file.mutable_model();
  if (!has_network(model)) {
    return refused_folder(
        spec, make_error(ErrorCode::kInvalidArgument, "FIELD_REQUIRED",
                         name + " is a file, which does not say the network; expected a preset "
                                "beside it, such as resnet50: {stem: imagenet}, or the folder of a "
                                "language model"));
  }
  model.clear_pretrained();
  if (v1::InitialWeights* const weights = free_weights(spec)) weights->set_path(name);
  return {};
}

}  // namespace

Status import_pretrained(Session& session, TemporaryFolder& scratch, client::SpecFile& spec,
                         WeightsNeed need) {
  v1::ModelSpec& model = *spec.file.mutable_model();
  if (model.pretrained().empty()) return {};
  const std::string name = model.pretrained();
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(spec.folder / name, ignored);
  if (is_file && name.ends_with(".safetensors")) return use_weights_file(name, spec);
  if (has_network(model)) {
    return refused_folder(spec,
                          make_error(ErrorCode::kInvalidArgument, "FIELD_CONFLICT",
                                     "describes the network itself; remove the preset or layers "
                                     "beside it"));
  }
  const bool only_shapes = need == WeightsNeed::kShapes;
  const auto found = model_folder(spec.folder / name, scratch,
                                  only_shapes ? GgufParts::kDescription : GgufParts::kAll);
  if (!found.ok()) return refused_folder(spec, found.error());
  const auto folder = read_pretrained_folder(found->path);
  if (!folder.ok()) return refused_folder(spec, folder.error());
  const auto network = preset_message(folder->model.network);
  if (!network.ok()) return refused_folder(spec, network.error());
  model.clear_pretrained();
  model.MergeFrom(*network);
  if (v1::InitialWeights* const weights = free_weights(spec)) {
    weights->set_path(name);
    // A GGUF file has become a folder of another name.
    const std::string title =
        is_file ? std::filesystem::path(name).filename().string() : folder->title;
    if (weights->title().empty()) weights->set_title(title);
    spec.imported_weights = folder->weights;
    if (folder->weights.empty()) {
      spec.implied_tensors = found->tensors.empty() ? folder->tensors : found->tensors;
    }
  }
  show_folder(session, name, *folder, !folder->weights.empty() || !found->tensors.empty());
  return {};
}

Status check_has_weights(const client::SpecFile& spec) {
  if (spec.implied_tensors.empty()) return {};
  return refused_folder(
      spec, make_error(ErrorCode::kInvalidArgument, "FILE_NOT_FOUND",
                       spec.file.recipe().initial_weights().path() +
                           " has no weights, expected model.safetensors or "
                           "model.safetensors.index.json; without them a job can only be planned "
                           "('trainyard plan')"));
}

}  // namespace trainyard::cli
