// client/lib/weights_upload.h: a model of weights alone on the server, made from a local
// safetensors file if it is not there yet.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>

#include "client/lib/upload.h"

namespace trainyard::client {

/// Uploads the file and makes the model; content that the server has is not sent again. Without a
/// name the server makes one of the content. Refusals: those of upload_file(); MODEL_FILE_INVALID;
/// MODEL_EXISTS.
Result<v1::Model> ensure_weights(Client& client, const std::filesystem::path& path,
                                 const std::string& name, const UploadObserver& observer,
                                 std::stop_token stop);

}  // namespace trainyard::client
