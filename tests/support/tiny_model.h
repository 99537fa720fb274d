// tests/support/tiny_model.h: the files of a model that can be read, for workers that train none.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace trainyard {

inline constexpr const char* kTinyModelJson =
    R"({"format_version": 1, "metrics": {}, "model": {"parameters": {"hidden": [8]},)"
    R"( "preset": "mlp"}, "parameter_count": 34, "precision": "fp32", "preprocessing":)"
    R"( {"image_mean": [], "image_scale": 1.0, "image_std": [], "numeric_mean": [5.5],)"
    R"( "numeric_std": [3.0], "target_mean": 0.0, "target_std": 1.0}, "producer": "a test",)"
    R"( "schema": {"columns": [{"kind": "numeric", "missing_count": 0, "name": "a"}],)"
    R"( "delimiter": ",", "ignored_columns": [], "kind": "tabular", "missing_values": [],)"
    R"( "source_columns": ["a", "y"], "statistics": {"categories": [], "channels": [],)"
    R"( "classes": [34, 26], "numeric": [{"max": 10.5, "mean": 5.5, "min": 0.5, "std": 3.0}],)"
    R"( "target": null, "tokens_per_row": null}, "target": {"classes": ["p", "q"], "kind":)"
    R"( "class", "name": "y"}, "test_rows": 0, "train_rows": 60}, "steps": 12})";

/// A safetensors file with one tensor of one number.
inline std::string tiny_weights() {
  const std::string header =
      R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )";  // a multiple of 8 bytes
  return std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header +
         std::string(4, '\0');
}

inline void write_tiny_model(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "model.safetensors", std::ios::binary) << tiny_weights();
  std::ofstream(folder / "model.json") << kTinyModelJson;
}

}  // namespace trainyard
