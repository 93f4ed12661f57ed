"""The model: its files, its configuration, and whether engine and libraries know it."""

from __future__ import annotations

from fleetctl.doctor.signatures.signature import Signature

MODEL = [
    Signature(
        "model-config",
        r"has no attribute 'full_attention_interval'",
        "the model's configuration has no full_attention_interval for this sglang with this transformers",
        "the transformers version that this sglang pins, or a config.json with that field",
        verdict="fatal",
    ),
    Signature(
        "model-type-unknown",
        r"Transformers does not recognize this architecture|KeyError: '(?:qwen|llama|glm|deepseek|gemma"
        r"|mistral)[\w.]*'$"
        r"|Unrecognized model in|Unrecognized configuration class|does not recognize this architecture",
        "this transformers does not know the model's type",
        "a later transformers that knows it (and an engine that goes with it), or --trust-remote-code for "
        "models "
        "that bring their own code",
    ),
    Signature(
        "model-architecture",
        r"Model architectures? \S.*(?:are|is) not supported|Unsupported (?:model )?architectures?:?"
        r"|has no (?:SG[Ll]ang|vLLM) implementation|Cannot find model module|Model class .*not found"
        r"|unknown model architecture|GGUF model with architecture \S+ is not supported|[Uu]nknown gguf model"
        r"|[Uu]nsupported (?:model type|model_type|model class)"
        r"|[Mm]odel type \S+ (?:is )?not (?:currently )?supported"
        r"|No model class|not supported model architecture|architecture \S+ (?:is )?not supported"
        r"|failed to be inspected",
        "this engine does not know the model's architecture",
        "a later version of the engine that supports it, or another engine",
    ),
    Signature(
        "model-remote-code",
        r"trust_remote_code=True|contains custom code which must be executed",
        "the model brings code of its own, which is not allowed to run",
        "--trust-remote-code, if you trust its authors",
        arguments={"trust-remote-code": True},
    ),
    Signature(
        "model-gated",
        r"GatedRepoError|Cannot access gated repo|Access to model \S+ is restricted"
        r"|401 Client Error: Unauthorized"
        r"|403 Client Error: Forbidden",
        "the model is behind a licence that this token has not accepted, or there is no token",
        "accept its licence and set HF_TOKEN, or serve from a folder on the host",
    ),
    Signature(
        "model-missing",
        r"does not appear to have a file named (?:config\.json|pytorch_model|model\.safetensors)"
        r"|is not a valid model identifier|Repository Not Found|RepositoryNotFoundError"
        r"|HFValidationError|Can't load (?:the )?configuration (?:of|for)"
        r"|Repo id must (?:be in the form|use alphanumeric)"
        r"|Invalid repository ID or local directory|No (?:supported )?config(?:uration)? (?:file|format)"
        r"|No such file or directory: '[^']*(?:config\.json|\.safetensors|\.gguf)'",
        "the model is not where the service looks for it",
        "correct the model's path, or copy the model to the host",
        verdict="fatal",
        also=(
            r"Incorrect path_or_model_id|[Mm]odel (?:path|file|directory|folder) .{0,200}(?:does not"
            r"|doesn't) exist|[Cc]ould not find (?:the )?model|is not a local folder and is not a valid"
            r"|pull model manifest: file does not exist|does not appear to have a file named \S+\.py"
        ),
    ),
    Signature(
        "model-hub-offline",
        r"LocalEntryNotFoundError|OfflineModeIsEnabled|We couldn't connect to 'https://huggingface"
        r"|HfHubHTTPError|cannot find the (?:requested files|appropriate snapshot folder)"
        r"|host='huggingface\.co'.*Max retries|Max retries exceeded with url: \S*(?:resolve|api/models)",
        "the model is to come from the hub, which this host does not reach, and the cache lacks it",
        "serve from a folder on the host (a model's `path`), or fill the cache; HF_HUB_OFFLINE=1 ends the "
        "asking",
    ),
    Signature(
        "model-file-damaged",
        r"SafetensorError|Error while deserializing header|HeaderTooLarge|MetadataIncompleteBuffer"
        r"|PytorchStreamReader failed|UnpicklingError: |invalid load key, 'v'|git-lfs\.github\.com"
        r"|gguf: .*(?:invalid|failed)|(?:incomplete|corrupt)\w* (?:download|checkpoint|shard|file|metadata)"
        r"|is corrupted or incomplete|invalid magic|not within (?:the )?file bounds|EOFError: Ran out of input"
        r"|(?:InvalidHeader|HeaderTooSmall|InvalidOffset|MetadataInc)\w*|Unable to load weights from"
        r"|unexpected end of (?:file|data)|[Cc]hecksum (?:mismatch|failed)|failed to load model from"
        r"|not a valid safetensors|unexpectedly reached end of file|error loading model\b(?!: unknown)",
        "a weights file is damaged, cut short, or only a git-lfs pointer",
        "copy or download that file again; compare sizes and hashes with its source",
    ),
    Signature(
        "model-shards-missing",
        r"Cannot find any model weights|Cannot find any of the model weights"
        r"|no (?:such )?file\w* .*safetensors found"
        r"|No safetensors|missing shard|index (?:file )?references .*missing"
        r"|model-\d{5}-of-\d{5}\.safetensors",
        "weights files of the model are missing",
        "copy the model again, whole: the index names each shard",
    ),
    Signature(
        "model-json",
        r"json\.decoder\.JSONDecodeError|is not a valid JSON file",
        "a JSON file (of the model or of an argument) is empty or broken",
        "look at config.json, tokenizer.json and the JSON among the arguments; copy the file again",
    ),
    Signature(
        "model-processor",
        r"Failed to apply \S*Processor|[Cc]an't load (?:image|feature|video|audio)? ?processor"
        r"|Unrecognized (?:image|video|"
        r"feature) ?processor|preprocessor_config\.json|[Uu]nrecognized processing class|processor_config",
        "the model's image, video or audio processor could not be loaded or does not take what it is given",
        "the processor's files (preprocessor_config.json) beside the weights; the transformers version that the "
        "engine pins; --limit-mm-per-prompt",
    ),
    Signature(
        "model-tokenizer",
        r"Can't load tokenizer for|Converting from (?:SentencePiece and )?Tiktoken failed"
        r"|Couldn't instantiate the backend tokenizer|Tokenizer class \S+ does not exist"
        r"|data did not match any variant of untagged enum|tokenizer\.(?:json|model)'? .*(?:not found"
        r"|missing)"
        r"|Exception: data did not match|expected value at line \d+ column|EOF while parsing a value"
        r"|Cannot instantiate this tokenizer|not found in (?:the )?tokenizer|sentencepiece.*(?:[Ii]nternal|fail)"
        r"|tokenizer .{0,40}(?:could not|cannot) be (?:loaded|converted)|[Tt]iktoken.{0,40}(?:fail|not found"
        r"|missing)",
        "the model's tokenizer cannot be loaded: a file is missing, or it was written by a newer tokenizers",
        "all tokenizer files beside the weights; the transformers and tokenizers versions that the engine "
        "pins",
    ),
    Signature(
        "model-quantization",
        r"does not support \w+ quantization|quantization .*(?:is|are) not (?:yet )?supported"
        r"|not supported quantization"
        r"|Unsupported quantization|quant_method|No (?:quantization|kernel) .*(?:can implement|implements)"
        r"|Failed to find a kernel that can implement|(?:KeyError|Weight)\S*: '?[\w.]*\.(?:qweight|qzeros"
        r"|scales|"
        r"weight_scale\w*|input_scale|weight_packed|absmax|g_idx)",
        "the model's quantization is of a kind that this engine (or this model class in it) cannot load",
        "the model in another quantization, or a version of the engine that supports this one",
    ),
    Signature(
        "model-weights-mismatch",
        r"KeyError: '(?:model\.|language_model\.|transformer\.|lm_head|layers\.|blocks?\.|visual\."
        r"|encoder\.)[\w.]*'"
        r"|size mismatch for|Unexpected (?:weight|key)|Missing key\(s\) in state_dict"
        r"|Error\(s\) in loading state_dict"
        r"|Following weights were not initialized from checkpoint|There is no module or parameter named"
        r"|Attempted to load weight \(|in (?:load_weights|weight_loader)$|loaded_weight\.shape"
        r"|Parameter \S+ not found in|Cannot copy out of meta tensor|missing tensor|tensor '\S+' (?:not found"
        r"|has wrong)"
        r"|wrong number of tensors|[Ww]eight .{0,80}not found in (?:the )?(?:model|checkpoint|state)"
        r"|not found in params_dict|Trying to set a tensor of shape",
        "the checkpoint's weights are not those that the engine builds for this model (version, "
        "quantization or class)",
        "an engine version that knows this checkpoint; its config.json and quantization as its authors "
        "wrote them",
        source="vllm#11010: several",
    ),
    Signature(
        "model-config-field",
        r"Config' object has no attribute '|Config\.__init__\(\) got an unexpected|rope_scaling.*(?:must"
        r"|should|unknown|missing)"
        r"|[`']rope_scaling[`']'?s? .*field|KeyError: '(?:model_type|architectures|rope_type|factor"
        r"|num_hidden_layers|type)'",
        "the model's config.json lacks a field that this engine with this transformers reads (or has it "
        "in another form)",
        "the transformers version that this engine pins, or the config.json of the model's authors",
    ),
    Signature(
        "model-lora",
        r"LoRA rank \d+ is greater than|lora_(?:rank|alpha|modules)\b.*(?:not supported|must|greater)"
        r"|adapter_config\.json",
        "the LoRA adapter does not go with the arguments or is not there",
        "--max-lora-rank of the adapter's rank; its folder whole",
    ),
]
