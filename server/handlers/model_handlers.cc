#include "server/handlers/model_handlers.h"

#include <spdlog/spdlog.h>

#include "proto/convert/run.h"
#include "server/config/log.h"
#include "server/files/removals.h"
#include "server/rpc/names.h"
#include "server/rpc/status.h"
#include "server/store/random_id.h"
#include "src/base/clock.h"
#include "src/base/text.h"

namespace trainyard::server {

Result<Model> find_model(const ModelParts& parts, const std::string& name) {
  ASSIGN_OR_RETURN(const ResourceName model, parse_name(Collection::kModels, "name", name));
  return parts.store.models().find(model.project, model.id);
}

namespace {

constexpr size_t kPredictBytesMax = 3 << 20;
constexpr size_t kPromptBytesMax = 1 << 20;
constexpr int kPromptCountMax = 16;
constexpr int64_t kTokensMax = 65536;

/// Removes the names of what the caller may not see from a model that is shared with the caller: it
/// does not tell what else its project has.
void hide_origin(const People& people, const Principal& caller, const Model& model,
                 v1::Model& out) {
  const auto may_view = [&](const std::string& project) {
    return people.role(caller, project) >= ProjectRole::kViewer;
  };
  if (may_view(model.project)) return;
  out.clear_job();
  const StoredName dataset = split_stored_name(model.project, model.dataset);
  if (!may_view(dataset.project) &&
      !people.is_shared_with(caller, dataset.project, "datasets", dataset.id)) {
    out.clear_dataset();
  }
}

int64_t count_parameters(const std::vector<v1::WeightTensor>& tensors) {
  int64_t count = 0;
  for (const v1::WeightTensor& t : tensors) {
    if (converts_to_f32(t.dtype())) count += to_engine(t).shape.elements();
  }
  return count;
}

/// Error: FAILED_PRECONDITION/PREDICT_UNSUPPORTED for a model that has weights only.
Result<Model> find_network(const ModelParts& parts, const std::string& name) {
  ASSIGN_OR_RETURN(Model model, find_model(parts, name));
  if (!model.weights_alone()) return model;
  return make_error(ErrorCode::kFailedPrecondition, "PREDICT_UNSUPPORTED",
                    model.name() +
                        " has weights only, without a network or preprocessing; start a job from "
                        "it with recipe.initial_weights");
}

Status check_uploaded(const ModelParts& parts, const std::string& project,
                      const std::string& sha256, const char* field, int64_t& bytes) {
  if (!is_sha256_hex(sha256)) {
    return field_error("NAME_MALFORMED", field,
                       quoted_value(sha256) + " is not 64 lower-case hexadecimal digits");
  }
  ASSIGN_OR_RETURN(const Upload upload, parts.uploads.find({project, sha256}));
  bytes = upload.size_bytes;
  if (upload.complete) return {};
  Error e = make_error(ErrorCode::kFailedPrecondition, "UPLOAD_INCOMPLETE",
                       std::string(field) + ": the file " + sha256.substr(0, 12) +
                           "... was not uploaded completely");
  e.metadata = {{"upload", full_name(project, Collection::kUploads, sha256)},
                {"committed_size", std::to_string(upload.committed_size)}};
  return e;
}

/// Creates the model's row and answers the call. A folder that no row refers to is removed.
void store_model(const ModelParts& parts, NewWeights weights, const Done<v1::Model>& done) {
  const std::string uid = weights.folder_uid;
  parts.store.models().create(std::move(weights), [&parts, uid, done](const Result<Model>& model) {
    if (!uid.empty() && (!model.ok() || model->job_uid != uid)) {
      const std::filesystem::path folder = parts.paths.model(uid);
      if (Status s = remove_kept(parts.files, parts.paths, folder); !s.ok()) {
        spdlog::warn("event=files_not_deleted {}", kv("message", s.error().message));
      }
    }
    if (!model.ok()) return done(model.error());
    spdlog::info("event=model_created {} digest={} {}", kv("model", model->name()), model->digest,
                 kv("owner", model->owner));
    done(to_proto(*model));
  });
}

/// Makes a model that predicts and generates, in a worker.
void import_described(const ModelParts& parts, const std::string& description, NewWeights weights,
                      const Done<v1::Model>& done) {
  const std::string sha256 = weights.sha256;
  weights.folder_uid = random_uid(system_clock().wall_us());
  const std::string uid = weights.folder_uid;
  parts.one_shot_tasks.import_model(
      sha256, description, uid,
      [&parts, weights = std::move(weights), done](const Result<ImportedModel>& made) mutable {
        if (!made.ok()) return done(made.error());
        weights.sha256 = made->digest;
        weights.schema = made->schema;
        weights.tensors = made->tensors;
        weights.parameter_count = count_parameters(weights.tensors);
        std::error_code ec;
        const std::filesystem::path file = parts.paths.weights(weights.folder_uid, "");
        weights.size_bytes = static_cast<int64_t>(std::filesystem::file_size(file, ec));
        if (ec) return done(file_error("cannot stat", file, ec.value()));
        store_model(parts, std::move(weights), done);
      });
}

void create_model(const ModelParts& parts, const v1::CreateModelRequest& request,
                  const CallInfo& call, Done<v1::Model> done) {
  if (parts.draining) return done(draining_error());
  const Result<std::string> project = parse_parent(request.parent());
  if (!project.ok()) return done(project.error());
  NewWeights weights;
  weights.project = *project;
  weights.owner = call.principal.person;
  weights.sha256 = request.sha256();
  weights.id = "w-" + weights.sha256.substr(0, kDefaultIdDigits);
  if (!request.model_id().empty()) {
    weights.id = request.model_id();
    if (Status s = check_id(Collection::kModels, "model_id", weights.id); !s.ok()) {
      return done(s.error());
    }
  }
  if (Status s = parts.disk.check(); !s.ok()) return done(s.error());
  Status uploaded = check_uploaded(parts, *project, weights.sha256, "sha256", weights.size_bytes);
  if (!uploaded.ok()) return done(uploaded.error());
  if (const std::string& description = request.description_sha256(); !description.empty()) {
    int64_t description_bytes = 0;
    uploaded =
        check_uploaded(parts, *project, description, "description_sha256", description_bytes);
    if (!uploaded.ok()) return done(uploaded.error());
    return import_described(parts, description, std::move(weights), done);
  }
  const std::string sha256 = weights.sha256;
  parts.one_shot_tasks.inspect(sha256,
                               [&parts, weights = std::move(weights), done = std::move(done)](
                                   const Result<std::vector<v1::WeightTensor>>& tensors) mutable {
                                 if (!tensors.ok()) return done(tensors.error());
                                 weights.tensors = *tensors;
                                 weights.parameter_count = count_parameters(weights.tensors);
                                 store_model(parts, std::move(weights), done);
                               });
}

Result<v1::Model> get_model(const ModelParts& parts, const v1::GetModelRequest& request,
                            const CallInfo& call) {
  ASSIGN_OR_RETURN(const Model model, find_model(parts, request.name()));
  v1::Model out = to_proto(model);
  hide_origin(parts.people, call.principal, model, out);
  return out;
}

Result<v1::ListModelsResponse> list_models(const ModelParts& parts,
                                           const v1::ListModelsRequest& request) {
  ASSIGN_OR_RETURN(const std::string project, parse_parent(request.parent()));
  ASSIGN_OR_RETURN(const ModelPage page,
                   parts.store.models().list(project, request.page_size(), request.page_token()));
  v1::ListModelsResponse response;
  for (const Model& model : page.models) *response.add_models() = to_proto(model);
  response.set_next_page_token(page.next_page_token);
  return response;
}

void predict(const ModelParts& parts, const v1::PredictRequest& request, const CallInfo& call,
             Done<v1::PredictResponse> done) {
  if (parts.draining) return done(draining_error());
  const Result<Model> model = find_network(parts, request.name());
  if (!model.ok()) return done(model.error());
  size_t bytes = request.csv().size() + request.idx_images().size() + request.text().size();
  for (const v1::ImageFiles::File& file : request.images().files()) bytes += file.content().size();
  if (bytes == 0 || bytes > kPredictBytesMax) {
    return done(
        field_error(bytes == 0 ? "FIELD_REQUIRED" : "FIELD_OUT_OF_RANGE", "rows",
                    std::to_string(bytes) +
                        " bytes, expected csv, idx_images, text or images of 1 to 3145728 bytes"));
  }
  if (Status s = parts.call_quotas.take(model->project, call.principal.person); !s.ok()) {
    return done(s.error());
  }
  parts.predict.run({model->job_uid, model->size_bytes}, request, std::move(done));
}

void evaluate(const ModelParts& parts, const v1::EvaluateRequest& request, const CallInfo& call,
              Done<v1::EvaluateResponse> done) {
  if (parts.draining) return done(draining_error());
  const auto digest = [&]() -> Result<std::string> {
    ASSIGN_OR_RETURN(const DatasetName name, parse_dataset_name("dataset", request.dataset()));
    ASSIGN_OR_RETURN(const Dataset dataset,
                     parts.store.datasets().find_usable(name.project, name.ref));
    if (dataset.state != v1::Dataset::READY) return not_ready_error(dataset, "call");
    return dataset.digest;
  };
  const Result<Model> model = find_network(parts, request.name());
  if (!model.ok()) return done(model.error());
  const Result<std::string> dataset = digest();
  if (!dataset.ok()) return done(dataset.error());
  if (Status s = parts.call_quotas.take(model->project, call.principal.person); !s.ok()) {
    return done(s.error());
  }
  parts.predict.evaluate({model->job_uid, model->size_bytes}, *dataset, request, std::move(done));
}

Status delete_model(const ModelParts& parts, const v1::DeleteModelRequest& request,
                    const CallInfo& call) {
  ASSIGN_OR_RETURN(const ResourceName name,
                   parse_name(Collection::kModels, "name", request.name()));
  ASSIGN_OR_RETURN(const Model model, parts.store.models().remove(name.project, name.id));
  parts.predict.forget(model.job_uid, make_error(ErrorCode::kNotFound, "MODEL_NOT_FOUND",
                                                 model.name() + " was deleted meanwhile"));
  if (model.weights_alone()) {
    parts.uploads.discard(model.project, model.digest);
  } else if (Status s =
                 remove_noted(parts.store, parts.files, parts.paths, "models/" + model.job_uid);
             !s.ok()) {
    spdlog::warn("event=files_not_deleted {} {}", kv("model", model.name()),
                 kv("message", s.error().message));
  }
  spdlog::info("event=model_deleted {} {}", kv("model", model.name()),
               kv("caller", call.principal.text()));
  // The store has ended its shares.
  if (parts.people.has_shares(name.project, "models", name.id)) {
    (void)parts.people.reload();
  }
  return {};
}

/// Checks the number and size of what is continued; the worker reads the texts.
Status check_prompts(const v1::GenerateRequest& request) {
  const int forms = (request.prompt().empty() ? 0 : 1) + (request.prompts().empty() ? 0 : 1) +
                    (request.messages().empty() ? 0 : 1);
  if (forms > 1) {
    return field_error("FIELD_CONFLICT", "prompt",
                       "several of prompt, prompts and messages are given, expected one of them");
  }
  if (request.prompts_size() > kPromptCountMax) {
    return field_error("FIELD_OUT_OF_RANGE", "prompts",
                       std::to_string(request.prompts_size()) + " texts, expected 1 to " +
                           std::to_string(kPromptCountMax));
  }
  size_t bytes = request.prompt().size();
  for (int i = 0; i < request.prompts_size(); ++i) {
    if (request.prompts(i).empty()) {
      return field_error("FIELD_REQUIRED", "prompts[" + std::to_string(i) + "]",
                         "is empty, expected a text to continue");
    }
    bytes += request.prompts(i).size();
  }
  for (const v1::ChatMessage& m : request.messages()) bytes += m.role().size() + m.content().size();
  if (forms == 1 && bytes <= kPromptBytesMax) return {};
  const std::string field = !request.messages().empty()  ? "messages"
                            : !request.prompts().empty() ? "prompts"
                                                         : "prompt";
  return field_error(
      forms == 0 ? "FIELD_REQUIRED" : "FIELD_OUT_OF_RANGE", field,
      std::to_string(bytes) + " bytes, expected a text of 1 to 1048576 bytes to continue");
}

}  // namespace

Result<CallNumber> generate(const ModelParts& parts, const v1::GenerateRequest& request,
                            const Principal& caller,
                            std::function<void(const v1::GenerateResponse&)> on_text,
                            Done<void> done) {
  if (parts.draining) return draining_error();
  ASSIGN_OR_RETURN(const Model model, find_network(parts, request.name()));
  if (Status s = check_prompts(request); !s.ok()) return s.error();
  if (request.has_token_count() &&
      (request.token_count() < 1 || request.token_count() > kTokensMax)) {
    return field_error("FIELD_OUT_OF_RANGE", "token_count",
                       std::to_string(request.token_count()) + ", expected 1 to 65536");
  }
  if (Status s = parts.call_quotas.take(model.project, caller.person); !s.ok()) return s.error();
  return parts.predict.generate({model.job_uid, model.size_bytes}, request, std::move(on_text),
                                std::move(done));
}

void add_model_rows(Methods& rows, const ModelParts& parts) {
  rows.add("CreateModel", parts, &create_model);
  rows.add("ListModels", parts, &list_models);
  rows.add("GetModel", parts, &get_model);
  rows.add("Predict", parts, &predict);
  rows.add("Evaluate", parts, &evaluate);
  rows.add("DeleteModel", parts, &delete_model);
}

}  // namespace trainyard::server
