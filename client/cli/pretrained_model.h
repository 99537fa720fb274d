// client/cli/pretrained_model.h: the folder or the GGUF file of a language model that a spec file
// names (model.pretrained).
#pragma once

#include "client/cli/session.h"
#include "client/cli/temporary_folder.h"
#include "client/lib/spec_file.h"

namespace trainyard::cli {

/// Says whether a command needs the numbers of a model's weights or only names and shapes. The
/// numbers of a GGUF file are unpacked, to a file in `scratch`, only if they are needed.
enum class WeightsNeed : uint8_t { kShapes, kNumbers };

/// Reads model.pretrained. A safetensors file becomes the initial weights of the network beside it.
/// With a folder or a GGUF file, the model becomes a preset with parameters, the folder's weights
/// become the initial weights unless the recipe names others, and its tokenizer that of the
/// dataset's documents unless the dataset names one. A folder without weights can only be planned.
/// Notes go to stderr.
Status import_pretrained(Session& session, TemporaryFolder& scratch, client::SpecFile& spec,
                         WeightsNeed need);

/// Refuses a spec whose model comes from a folder without weights.
Status check_has_weights(const client::SpecFile& spec);

}  // namespace trainyard::cli
