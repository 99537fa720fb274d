// Fuzzes config.json of a language model of transformers. An accepted network has tensors with
// names and a count of parameters, and can be written as a job file.
#include "src/models/families/family.h"
#include "src/pretrained/pretrained_folder.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trainyard;  // NOLINT
  const auto model = read_model_config(text_of(data, size));
  if (!model.ok()) return 0;
  TRAINYARD_CHECK(!model->tensors.empty() && model->parameter_count() > 0, "a network has tensors");
  for (const ExpectedTensor& tensor : model->tensors) {
    TRAINYARD_CHECK(!tensor.name.empty(), "a tensor has a name");
  }
  TRAINYARD_CHECK(!network_to_yaml(model->network).empty(), "the network is written");
  return 0;
}
