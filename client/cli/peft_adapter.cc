#include "client/cli/peft_adapter.h"

#include "src/base/text.h"
#include "src/pretrained/adapter_folder.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAdapterField = "recipe.lora.adapter";

Error refused_adapter(const client::SpecFile& spec, Error error) {
  error.violations = {{kAdapterField, error.message}};
  error.message = std::string(kAdapterField) + ": " + error.message;
  return spec.with_positions(std::move(error));
}

Error invalid_adapter(const client::SpecFile& spec, const std::string& reason,
                      const std::string& what) {
  return refused_adapter(spec, make_error(ErrorCode::kInvalidArgument, reason, what));
}

/// Refuses fields that the adapter's own settings decide.
Status check_alone(const client::SpecFile& spec, const v1::Lora& lora) {
  const char* given = lora.rank() != 0               ? "rank"
                      : lora.has_alpha()             ? "alpha"
                      : lora.targets_size() > 0      ? "targets"
                      : !lora.rank_scaling().empty() ? "rank_scaling"
                                                     : nullptr;
  if (given == nullptr) return {};
  return invalid_adapter(
      spec, "FIELD_CONFLICT",
      std::string("decides recipe.lora.") + given + ", expected only one of both");
}

void set_lora(const LoraSpec& from, v1::Lora& lora) {
  lora.clear_adapter();
  lora.set_rank(from.rank);
  lora.set_alpha(from.alpha);
  if (lora.dropout() == 0) lora.set_dropout(from.dropout);
  for (const std::string& target : from.targets) lora.add_targets(target);
  lora.set_rank_scaling(from.rank_scaling);
}

}  // namespace

Status import_adapter(Session& session, TemporaryFolder& scratch, client::SpecFile& spec) {
  if (spec.file.recipe().lora().adapter().empty()) return {};
  v1::Lora& lora = *spec.file.mutable_recipe()->mutable_lora();
  const std::string name = lora.adapter();
  if (Status s = check_alone(spec, lora); !s.ok()) return s;
  if (!spec.has_weights()) {
    return invalid_adapter(
        spec, "FIELD_REQUIRED",
        "needs the weights of the model that it adapts, expected model.pretrained "
        "or recipe.initial_weights.path");
  }
  const auto adapter = read_adapter_folder(spec.folder / name);
  if (!adapter.ok()) return refused_adapter(spec, adapter.error());
  set_lora(adapter->lora, lora);
  session.hint(safe_text(name) + ": an adapter of rank " + std::to_string(adapter->lora.rank));
  if (!spec.implied_tensors.empty())
    return {};  // the folder has no weights: only a plan is possible
  const fs::path folder = scratch.path() / "adapter";
  std::error_code error;
  fs::create_directories(folder, error);
  auto index = join_adapter(spec.weights_path(), adapter->weights, folder);
  if (!index.ok()) return refused_adapter(spec, index.error());
  spec.imported_weights = std::move(index).value();
  return {};
}

}  // namespace trainyard::cli
