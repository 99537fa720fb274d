#include "src/inference/imported_model.h"

#include <algorithm>
#include <cmath>

#include "kernels/math/half.h"
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

/// A tensor of the model to be written, without its bytes, and where its numbers come from.
struct Target {
  TensorView view;
  const TakenWeight* from;
};

/// Returns the model's tensors in the order of the file: those that keep the alignment of the next
/// one come first, since the format has no gaps.
std::vector<Target> targets_of(const WeightMatch& match, const WeightsFile& file) {
  std::vector<Target> targets;
  for (const TakenWeight& t : match.taken) {
    targets.push_back(
        {{t.name, {t.shape, DType::kF32}, {}, storage_in_file(t, file.tensors())}, &t});
  }
  std::ranges::stable_partition(
      targets, [](const Target& t) { return t.view.stored_bytes() % kMappedAlignment == 0; });
  return targets;
}

template <typename Half>
std::vector<Half> narrow_all(const std::vector<float>& values) {
  std::vector<Half> halves;
  for (const float v : values) halves.push_back(math::narrow<Half>(v));
  return halves;
}

/// Writes elements of a tensor that begins at `begin`, from `first` on. Numbers that the source has
/// in 16 bits get the same bits again.
Status write_part(FileFiller& filler, int64_t begin, const TensorView& tensor, int64_t first,
                  const std::vector<float>& values) {
  const auto write = [&](const auto& stored) {
    return filler.write_at(begin + first * static_cast<int64_t>(sizeof stored[0]),
                           std::as_bytes(std::span(stored)));
  };
  if (tensor.storage == Storage::kBf16) return write(narrow_all<math::Bf16>(values));
  if (tensor.storage == Storage::kF16) return write(narrow_all<math::F16>(values));
  return write(values);
}

/// Writes the tensors part by part, so that memory is needed for one part only.
Status write_tensors(Files& files, const WeightMatch& match, const WeightsFile& file,
                     const fs::path& path) {
  const std::vector<Target> targets = targets_of(match, file);
  std::vector<TensorView> views;
  for (const Target& t : targets) views.push_back(t.view);
  ASSIGN_OR_RETURN(const SafetensorsLayout layout, lay_out_safetensors(views, kMappedAlignment));
  ASSIGN_OR_RETURN(const std::unique_ptr<FileFiller> filler, files.create_file(path, layout.bytes));
  Status s = filler->write_at(0, std::as_bytes(std::span(layout.prefix)));
  for (size_t i = 0; i < targets.size() && s.ok(); ++i) {
    s = for_each_part(*targets[i].from, file, [&](int64_t first, const std::vector<float>& values) {
      if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) {
        return Status(misfit_error(views[i].name + " has values that are not finite"));
      }
      return write_part(*filler, layout.offsets[i], views[i], first, values);
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
