#include "src/inference/imported_model.h"

#include <algorithm>
#include <cmath>

#include "src/checkpoint/weights_file.h"
#include "src/planning/weight_match.h"
#include "src/train/initial_weights.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

Error misfit_error(const std::string& what) {
  return make_error(ErrorCode::kInvalidArgument, "MODEL_FILE_INVALID", "the weights: " + what);
}

/// Finds all tensors of the network in the file, and no others.
Result<WeightMatch> match_all(const ModelInfo& info, const WeightsFile& file) {
  BuildOptions options;
  options.training = false;
  ASSIGN_OR_RETURN(const Model built, build_model(info.model, info.interface(), options));
  std::vector<TensorInfo> tensors;
  for (const TensorInfo& t : built.graph.tensors()) {
    if (t.role == Role::kParameter || t.role == Role::kState) tensors.push_back(t);
  }
  InitialWeights spec;
  spec.source = "the file";
  const Result<WeightMatch> match = match_weights(spec, file.tensors(), tensors);
  if (!match.ok()) return misfit_error(match.error().message);
  for (const auto& [names, what] : {std::pair(&match->report.missing, "lack the network's "),
                                    std::pair(&match->report.unused, "also have ")}) {
    if (!names->empty()) return misfit_error(what + names->front());
  }
  return match;
}

/// Writes the tensors part by part, so that memory is needed for one part only.
Status write_tensors(Files& files, const WeightMatch& match, const WeightsFile& file,
                     const fs::path& path) {
  std::vector<std::pair<std::string, TensorType>> types;
  for (const TakenWeight& t : match.taken) types.push_back({t.name, {t.shape, DType::kF32}});
  ASSIGN_OR_RETURN(const SafetensorsLayout layout, lay_out_safetensors(types));
  ASSIGN_OR_RETURN(const std::unique_ptr<FileFiller> filler, files.create_file(path, layout.bytes));
  Status s = filler->write_at(0, std::as_bytes(std::span(layout.prefix)));
  for (size_t i = 0; i < match.taken.size() && s.ok(); ++i) {
    s = for_each_part(match.taken[i], file, [&](int64_t first, const std::vector<float>& values) {
      if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) {
        return Status(misfit_error(match.taken[i].name + " has values that are not finite"));
      }
      return filler->write_at(layout.offsets[i] + first * static_cast<int64_t>(sizeof(float)),
                              std::as_bytes(std::span(values)));
    });
  }
  return s.ok() ? filler->finish() : s;
}

}  // namespace

Result<ModelInfo> import_model(Files& files, const fs::path& description, const fs::path& weights,
                               const fs::path& output) {
  ASSIGN_OR_RETURN(ModelInfo info, read_model_info(description));
  ASSIGN_OR_RETURN(const WeightsFile file, WeightsFile::open(weights));
  ASSIGN_OR_RETURN(const WeightMatch match, match_all(info, file));
  info.parameter_count = 0;
  for (const TakenWeight& t : match.taken) info.parameter_count += t.shape.elements();
  fs::path temporary = output;
  temporary += ".tmp";
  const auto write = [&]() -> Status {
    if (Status s = files.remove_all(temporary); !s.ok()) return s;
    if (Status s = files.create_directories(temporary); !s.ok()) return s;
    if (Status s = write_tensors(files, match, file, temporary / kModelWeightsFile); !s.ok()) {
      return s;
    }
    if (Status s = write_model_info(files, temporary, info); !s.ok()) return s;
    return install_model(files, temporary, output);
  };
  if (Status s = write(); !s.ok()) {
    (void)files.remove_all(temporary);
    return std::move(s).error();
  }
  const Result<LoadedModel> loaded = read_model(output);  // checks what a later call relies on
  if (loaded.ok()) return info;
  (void)files.remove_all(output);
  return loaded.error();
}

}  // namespace trainyard
