#include "src/runtime/cuda/dnn.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"

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

BackendDescriptor make_tensor(int64_t name, const std::array<int64_t, 4>& size,
                              const std::array<int64_t, 4>& stride, cudnnDataType_t type,
                              bool is_virtual, int64_t alignment) {
  BackendDescriptor t = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, name);
  set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, size);
  set(t, CUDNN_ATTR_TENSOR_STRIDES, stride);
  set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual);
  finalize(t, "a cuDNN tensor");
  return t;
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

/// Descriptors are handed out into ones that the caller has created.
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

bool is_allowed(cudnnBackendDescriptor_t engine_config, const DnnArithmetic& arithmetic) {
  const auto engine = get_descriptors(engine_config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  int64_t count = 0;
  check(cudnnBackendGetAttribute(engine.at(0).get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                                 notes.data()),
        "reading the notes of a cuDNN engine");
  const bool is_f32 = arithmetic.operands == Format::kF32;
  return std::none_of(notes.begin(), notes.begin() + count, [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        return true;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:  // of F32: TF32
        return is_f32 && !arithmetic.tf32;
      // Transforms whose numbers lose several digits of a float.
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

std::optional<DnnPlan> DnnPlan::find(const Device& device, cudnnBackendDescriptor_t graph,
                                     const DnnArithmetic& arithmetic, int64_t workspace_max) {
  try {
    DnnPlan plan(device);
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      for (BackendDescriptor& engine : propose_engines(graph, mode)) {
        if (is_allowed(engine.get(), arithmetic) && plan.take(std::move(engine), workspace_max)) {
          return plan;
        }
      }
    }
  } catch (const CudaError& e) {
    if (CUDNN_STATUS_CATEGORY(e.code()) != CUDNN_STATUS_NOT_SUPPORTED) throw;
  }
  return std::nullopt;
}

bool DnnPlan::take(BackendDescriptor engine_config, int64_t workspace_max) {
  BackendDescriptor plan = dnn::create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  dnn::set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, device_->dnn());
  dnn::set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {engine_config.get()});
  // An engine may refuse in its own words; the next is asked.
  if (cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS) return false;
  workspace_bytes_ = dnn::get<int64_t>(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (workspace_bytes_ > workspace_max) return false;
  choice_ = choice_of(engine_config.get());
  engine_config_ = std::move(engine_config);
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
