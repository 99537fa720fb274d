// client/cli/peft_adapter.h: recipe.lora.adapter, with which training begins from an adapter that
// PEFT or an export has written.
#pragma once

#include "client/cli/session.h"
#include "client/cli/temporary_folder.h"
#include "client/lib/spec_file.h"

namespace trainyard::cli {

/// Replaces recipe.lora.adapter by the settings of the adapter's folder, and adds its tensors to
/// the initial weights, by an index in `scratch`. Does nothing without the field. Errors name it.
Status import_adapter(Session& session, TemporaryFolder& scratch, client::SpecFile& spec);

}  // namespace trainyard::cli
