#include "src/runtime/cuda/dnn.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "src/base/check.h"
#include "src/runtime/cuda/timing.h"

namespace trainyard::cuda {

using kernels::cuda::Format;

namespace dnn {

template <>
constexpr cudnnBackendAttributeType_t kTypeOf<cudnnBackendNumericalNote_t> =
    CUDNN_TYPE_NUMERICAL_NOTE;

std::string words(const char* what, cudnnBackendAttributeName_t name) {
  return std::string(what) + " " + std::to_string(name);
}

BackendDescriptor create(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t created = nullptr;
  const cudnnStatus_t status = cudnnBackendCreateDescriptor(type, &created);
  BackendDescriptor owner(created);
  check(status, "cudnnBackendCreateDescriptor " + std::to_string(type));
  return owner;
}

void set(const BackendDescriptor& d, cudnnBackendAttributeName_t name,
         std::initializer_list<cudnnBackendDescriptor_t> values) {
  set(d, name, std::span(values.begin(), values.size()));
}
void set(const BackendDescriptor& d, cudnnBackendAttributeName_t name,
         std::span<const cudnnBackendDescriptor_t> values) {
  check(cudnnBackendSetAttribute(d.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 static_cast<int64_t>(values.size()), values.data()),
        words("cudnnBackendSetAttribute", name));
}

void finalize(const BackendDescriptor& d, const char* what) {
  check(cudnnBackendFinalize(d.get()), what);
}

cudnnDataType_t data_type(Format format) {
  return format == Format::kF32    ? CUDNN_DATA_FLOAT
         : format == Format::kBf16 ? CUDNN_DATA_BFLOAT16
                                   : CUDNN_DATA_HALF;
}

BackendDescriptor make_scalar(int64_t name) {
  constexpr std::array<int64_t, 4> kOnes{1, 1, 1, 1};
  BackendDescriptor t = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, name);
  set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, kOnes);
  set(t, CUDNN_ATTR_TENSOR_STRIDES, kOnes);
  set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{alignof(float)});
  set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
  set(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  finalize(t, "a number for cuDNN");
  return t;
}

BackendDescriptor make_graph(std::initializer_list<cudnnBackendDescriptor_t> operations,
                             cudnnHandle_t handle) {
  return make_graph(std::span(operations.begin(), operations.size()), handle);
}
BackendDescriptor make_graph(std::span<const cudnnBackendDescriptor_t> operations,
                             cudnnHandle_t handle) {
  BackendDescriptor graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  if (handle != nullptr) set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  finalize(graph, "a cuDNN operation graph");
  return graph;
}

}  // namespace dnn

namespace {

/// Reads descriptors; cuDNN copies them into descriptors created by the caller.
std::vector<BackendDescriptor> get_descriptors(cudnnBackendDescriptor_t d,
                                               cudnnBackendAttributeName_t name,
                                               cudnnBackendDescriptorType_t type, int64_t most) {
  std::vector<BackendDescriptor> owners;
  std::vector<cudnnBackendDescriptor_t> pointers;
  for (int64_t i = 0; i < most; ++i) {
    owners.push_back(dnn::create(type));
    pointers.push_back(owners.back().get());
  }
  int64_t count = 0;
  check(cudnnBackendGetAttribute(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count,
                                 pointers.data()),
        dnn::words("cudnnBackendGetAttribute", name));
  owners.resize(static_cast<size_t>(std::min(count, most)));
  return owners;
}

}  // namespace

std::vector<BackendDescriptor> propose_engines(cudnnBackendDescriptor_t graph,
                                               cudnnBackendHeurMode_t mode,
                                               cudnnBackendDescriptor_t properties) {
  const BackendDescriptor heuristic = dnn::create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  dnn::set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {graph});
  dnn::set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (properties != nullptr) dnn::set(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, {properties});
  if (cudnnBackendFinalize(heuristic.get()) != CUDNN_STATUS_SUCCESS) return {};
  int64_t count = 0;
  check(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
        "counting what a cuDNN heuristic proposes");
  if (count == 0) return {};
  return get_descriptors(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                         CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

namespace {

std::vector<cudnnBackendNumericalNote_t> notes_of(cudnnBackendDescriptor_t engine_config) {
  const auto engine = get_descriptors(engine_config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  int64_t count = 0;
  check(cudnnBackendGetAttribute(engine.at(0).get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                                 notes.data()),
        "reading the notes of a cuDNN engine");
  notes.resize(static_cast<size_t>(count));
  return notes;
}

/// In cuDNN 9.19 only engine 0 of each pass has this note; it does not use tiles.
bool is_naive(cudnnBackendDescriptor_t engine_config) {
  return std::ranges::count(notes_of(engine_config), CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP) > 0;
}

}  // namespace

bool is_allowed(cudnnBackendDescriptor_t engine_config, const DnnArithmetic& arithmetic) {
  const bool is_f32 = arithmetic.operands == Format::kF32;
  return std::ranges::none_of(notes_of(engine_config), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        return true;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:  // means TF32 for F32 operands
        return is_f32 && !arithmetic.tf32;
      // Winograd transforms with large tiles, which lose several digits of a float.
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return is_f32;
      default:
        return false;
    }
  });
}

EngineChoice choice_of(cudnnBackendDescriptor_t engine_config) {
  EngineChoice choice;
  const auto engine = get_descriptors(engine_config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  choice.engine = dnn::get<int64_t>(engine.at(0).get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  for (const BackendDescriptor& knob :
       get_descriptors(engine_config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                       CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
    choice.knobs.push_back(
        {dnn::get<cudnnBackendKnobType_t>(knob.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE),
         dnn::get<int64_t>(knob.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)});
  }
  return choice;
}

RestoredEngine restore_engine(cudnnBackendDescriptor_t graph, const EngineChoice& choice,
                              cudnnBackendDescriptor_t properties) {
  RestoredEngine restored;
  const auto add = [&](cudnnBackendDescriptorType_t type) -> const BackendDescriptor& {
    return restored.parts.emplace_back(dnn::create(type));
  };
  std::vector<cudnnBackendDescriptor_t> knobs;
  for (const EngineChoice::Knob& k : choice.knobs) {
    const BackendDescriptor& knob = add(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    dnn::set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(k.type));
    dnn::set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, k.value);
    dnn::finalize(knob, "a cuDNN knob");
    knobs.push_back(knob.get());
  }
  const BackendDescriptor& engine = add(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  dnn::set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
  dnn::set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, choice.engine);
  if (properties != nullptr) dnn::set(engine, CUDNN_ATTR_ENGINE_DEVICEPROP, {properties});
  dnn::finalize(engine, "a cuDNN engine");
  restored.config = dnn::create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  dnn::set(restored.config, CUDNN_ATTR_ENGINECFG_ENGINE, {engine.get()});
  if (!knobs.empty()) {
    dnn::set(restored.config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
             std::span<const cudnnBackendDescriptor_t>(knobs));
  }
  dnn::finalize(restored.config, "a cuDNN engine's configuration");
  return restored;
}

std::vector<EngineChoice> allowed_engines(cudnnBackendDescriptor_t graph,
                                          const DnnArithmetic& arithmetic, Engines which,
                                          cudnnBackendDescriptor_t properties) {
  std::vector<EngineChoice> engines;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const BackendDescriptor& config : propose_engines(graph, mode, properties)) {
      if (!is_allowed(config.get(), arithmetic)) continue;
      if (is_naive(config.get()) != (which == Engines::kNaive)) continue;
      EngineChoice choice = choice_of(config.get());
      if (std::ranges::count(engines, choice) == 0) engines.push_back(std::move(choice));
    }
  }
  return engines;
}

namespace {

constexpr std::string_view kEngineWord = "cudnn engine=";

/// Reads a number from the beginning of the text and removes it.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}
bool take_char(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string words_of(const EngineChoice& choice) {
  std::string text = std::string(kEngineWord) + std::to_string(choice.engine);
  for (const EngineChoice::Knob& knob : choice.knobs) {
    text += " " + std::to_string(knob.type) + "=" + std::to_string(knob.value);
  }
  return text;
}

std::optional<EngineChoice> parse_engine(std::string_view text) {
  if (!text.starts_with(kEngineWord)) return std::nullopt;
  text.remove_prefix(kEngineWord.size());
  EngineChoice choice;
  const std::optional<int64_t> engine = take_number(text);
  if (!engine.has_value()) return std::nullopt;
  choice.engine = *engine;
  while (!text.empty()) {
    if (!take_char(text, ' ')) return std::nullopt;
    const std::optional<int64_t> type = take_number(text);
    if (!type.has_value() || *type < 0 || *type >= CUDNN_KNOB_TYPE_COUNTS) return std::nullopt;
    if (!take_char(text, '=')) return std::nullopt;
    const std::optional<int64_t> value = take_number(text);
    if (!value.has_value()) return std::nullopt;
    choice.knobs.push_back({*type, *value});
  }
  return choice;
}

std::optional<DnnPlan> DnnPlan::find(const Device& device, cudnnBackendDescriptor_t graph,
                                     const DnnArithmetic& arithmetic, int64_t workspace_max,
                                     const Trial& trial) {
  try {
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      for (BackendDescriptor& config : propose_engines(graph, mode)) {
        DnnPlan plan(device);
        if (is_allowed(config.get(), arithmetic) &&
            plan.take({{}, std::move(config)}, workspace_max) && trial(plan)) {
          return plan;
        }
      }
    }
  } catch (const CudaError& e) {
    if (CUDNN_STATUS_CATEGORY(e.code()) != CUDNN_STATUS_NOT_SUPPORTED) throw;
  }
  return std::nullopt;
}

std::optional<DnnPlan> DnnPlan::restore(const Device& device, cudnnBackendDescriptor_t graph,
                                        const DnnArithmetic& arithmetic, int64_t workspace_max,
                                        const EngineChoice& choice) {
  try {
    DnnPlan plan(device);
    RestoredEngine engine = restore_engine(graph, choice);
    if (is_allowed(engine.config.get(), arithmetic) &&
        plan.take(std::move(engine), workspace_max)) {
      return plan;
    }
  } catch (const CudaError& e) {
    if (e.fault() != CudaFault::kProgram) throw;
    check_sound(device,
                e.what());  // otherwise the fault of an earlier kernel would look like a refusal
  }
  return std::nullopt;
}

bool DnnPlan::take(RestoredEngine engine, int64_t workspace_max) {
  BackendDescriptor plan = dnn::create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  dnn::set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, device_->dnn());
  dnn::set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {engine.config.get()});
  // An engine may refuse with any error; the caller then tries the next one.
  if (cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS) {
    check_sound(*device_, "making a cuDNN plan");
    return false;
  }
  workspace_bytes_ = dnn::get<int64_t>(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (workspace_bytes_ > workspace_max) return false;
  choice_ = choice_of(engine.config.get());
  engine_ = std::move(engine);
  plan_ = std::move(plan);
  return true;
}

void DnnPlan::run(std::span<const int64_t> names, std::span<const void* const> pointers,
                  void* workspace) const {
  TRAINYARD_CHECK(names.size() == pointers.size(), "a tensor without a name");
  const auto count = static_cast<int64_t>(names.size());
  const BackendDescriptor pack = dnn::create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  check(cudnnBackendSetAttribute(pack.get(), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                 count, names.data()),
        "naming the tensors of a cuDNN plan");
  check(cudnnBackendSetAttribute(pack.get(), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                 CUDNN_TYPE_VOID_PTR, count, pointers.data()),
        "giving a cuDNN plan its tensors");
  check(cudnnBackendSetAttribute(pack.get(), CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                                 1, &workspace),
        "giving a cuDNN plan its workspace");
  dnn::finalize(pack, "the tensors of a cuDNN plan");
  check(cudnnBackendExecute(device_->dnn(), plan_.get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace trainyard::cuda
