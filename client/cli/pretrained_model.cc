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

}  // namespace

Status import_pretrained(Session& session, TemporaryFolder& scratch, client::SpecFile& spec,
                         WeightsNeed need) {
  v1::ModelSpec& model = *spec.file.mutable_model();
  if (model.pretrained().empty()) return {};
  const std::string name = model.pretrained();
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
  v1::InitialWeights& weights = *spec.file.mutable_recipe()->mutable_initial_weights();
  if (weights.job().empty() && weights.model().empty() && weights.path().empty()) {
    weights.set_path(name);
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
