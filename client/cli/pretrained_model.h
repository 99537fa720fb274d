// client/cli/pretrained_model.h: the folder of a language model that a spec file names
// (model.pretrained).
#pragma once

#include "client/cli/session.h"
#include "client/lib/spec_file.h"

namespace trainyard::cli {

/// Reads model.pretrained: the model becomes a preset with parameters, the folder's weights become
/// the initial weights unless the recipe names others, and its tokenizer that of the dataset's
/// documents unless the dataset names one. A folder without weights can only be planned. Notes go
/// to stderr.
Status import_pretrained(Session& session, client::SpecFile& spec);

/// Refuses a spec whose model comes from a folder without weights.
Status check_has_weights(const client::SpecFile& spec);

}  // namespace trainyard::cli
