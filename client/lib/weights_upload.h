// client/lib/weights_upload.h: ensures that a model of weights only exists on the server, and
// creates it from a local safetensors file if not.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>

#include "client/lib/upload.h"

namespace trainyard::client {

/// Uploads the file, or the files of an index as one, and creates the model. Content that the
/// server already has is not sent again. Without a name, the server derives one from the content.
/// Errors: those of upload_file(); MODEL_FILE_INVALID; MODEL_EXISTS.
Result<v1::Model> ensure_weights(Client& client, const std::filesystem::path& path,
                                 const std::string& name, const UploadObserver& observer,
                                 std::stop_token stop);

/// Uploads the weights and a description, the text of a model.json, and creates a model that
/// predicts and generates.
Result<v1::Model> import_model(Client& client, const std::filesystem::path& weights,
                               const std::filesystem::path& description, const std::string& name,
                               const UploadObserver& observer, std::stop_token stop);

}  // namespace trainyard::client
