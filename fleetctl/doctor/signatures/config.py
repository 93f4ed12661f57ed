"""Arguments that an engine refuses, or that do not go together."""

from __future__ import annotations

from fleetctl.doctor.signatures.signature import Signature

CFG = [
    Signature(
        "cfg-fa3-on-sm120",
        r"flash_attn at sgl-kernel is only supported on sm90"
        r"|FlashAttention v?3 (?:Backend )?requires SM>=?80 and SM<=?90",
        "the FlashAttention 3 backend was chosen; it is for Hopper",
        "--attention-backend triton (or flashinfer with a CUDA toolkit of 12.9 or later)",
        verdict="fatal",
        arguments={"attention-backend": "triton"},
        source="sglang#15342, gpustack#3326",
    ),
    Signature(
        "cfg-hybrid-radix",
        r"not compatible with radix cache when using --mamba-scheduler-strategy",
        "a hybrid model, speculation and the radix cache without extra buffers do not go together",
        "--disable-radix-cache, or --mamba-scheduler-strategy extra_buffer",
        verdict="fatal",
        arguments={"disable-radix-cache": True},
        source="sglang PR 22908",
    ),
    Signature(
        "cfg-mamba-extra-buffer",
        r"mamba extra_buffer is not compatible with --disable-radix-cache",
        "two arguments contradict each other: extra buffers are for the radix cache",
        "one of --mamba-scheduler-strategy extra_buffer and --disable-radix-cache, not both",
        source="sglang PR 19169",
    ),
    Signature(
        "cfg-unknown-algorithm",
        r"error: argument --speculative-algorithm: invalid choice",
        "this engine does not know the speculative algorithm",
        "an environment with the patch set that brings it, or one of the algorithms that the line names",
        verdict="fatal",
    ),
    Signature(
        "cfg-argument",
        r"error: (?:unrecognized arguments|argument --?[\w/-]+: |the following arguments are required)"
        r"|got an unexpected keyword argument '\w+'.*(?:ServerArgs|EngineArgs)"
        r"|(?:ServerArgs|EngineArgs|Namespace)\b.* got an unexpected keyword argument|No such option: --",
        "the engine refused its arguments",
        "correct the service's arguments for this engine's version",
        verdict="fatal",
    ),
    Signature(
        "cfg-mamba-track",
        r"in set_mamba_track_indices_from_reqs",
        "a defect of this sglang with speculative decoding on hybrid models",
        "a later sglang that has the fix; no speculation until then",
        verdict="fatal",
        source="sglang#28484, PR 27998",
    ),
    Signature(
        "cfg-parallel-size",
        r"must be divisible by (?:the )?(?:tensor|pipeline|expert|data"
        r"|context)?[ _-]?(?:model[ _-])?parallel"
        r"|must be divisible by (?:tp|ep|dp|pp)_size|is not divisible by (?:the )?(?:tp|tensor|number of)"
        r"|heads?.{0,60} (?:must be|is not|not) (?:evenly )?divisible"
        r"|not divisible by weight quantization block_n"
        r"|\d+ is not divisible by \d+"
        r"|input_size_per_partition ?= ?\d+ is not divisible|is not divisible by min_thread"
        r"|Consider reducing tensor_parallel_size|[Cc]annot split tensors? evenly|not evenly divisible"
        r"|(?:heads?|layers?|experts?|size|dim)\w* ?(?:\(\d+\)|= ?\d+)? (?:must be|should be|is not|not) divisible"
        r"|must be divisible by|not be divided evenly",
        "the model (its heads, experts or layers) cannot be divided over that many GPUs",
        "another --tp-size (--tensor-parallel-size, --ep-size) that divides it: usually 1, 2, 4 or 8",
        source="vllm: several",
    ),
    Signature(
        "cfg-gpu-count",
        r"invalid device ordinal|NVMLError_(?:InvalidArgument|NotFound)"
        r"|world size \(?\d+\)? is larger than the number of available GPUs"
        r"|[Tt]ensor parallel size \(?\d+\)? (?:cannot be|is) (?:larger|greater) than"
        r"|Local rank \d+ .*out of range|[Nn]ot enough GPUs|requires \d+ GPUs?.* but only \d+|but only \d+ GPUs?"
        r"|[Ii]nvalid device id|number of required GPUs|GPUs? \d+ is less than"
        r"|exceeds? (?:the )?(?:total )?number of "
        r"(?:available|visible) (?:GPUs|devices)|requested .{0,20}GPUs?.{0,40}available|more GPUs than",
        "more GPUs are asked for than the process sees",
        "a --tp-size no larger than the service's GPUs; look at CUDA_VISIBLE_DEVICES and the slot's `gpus`",
    ),
    Signature(
        "cfg-context-length",
        r"User-specified (?:max_model_len|context_length) .*is greater than the derived"
        r"|context[_ ]length .*is (?:greater|longer|larger) than the (?:derived|model)"
        r"|The model's (?:derived )?max_model_len|max_model_len \(\d+\) is (?:greater|larger)"
        r"|max_num_batched_tokens \(?\d*\)? ?(?:is|must be) (?:smaller|less|greater|at least)"
        r"|exceeds? (?:the )?(?:model's )?max\w* (?:model )?(?:length|len|position)",
        "the context length asked for is longer than the model's own",
        "a shorter --context-length (--max-model-len), or rope scaling in the model's config.json",
    ),
    Signature(
        "cfg-parser",
        r"[Uu]nknown (?:reasoning|tool.call) parser"
        r"|Unsupported (?:reasoning|tool.call)[ _]parser|invalid (?:tool call|reasoning) parser:"
        r"|Unsupported model type for reasoning parser",
        "the reasoning or tool-call parser chosen does not fit the model's tokenizer, or is not known",
        "the model's own parser, or start without --reasoning-parser (--tool-call-parser)",
    ),
    Signature(
        "cfg-chat-template",
        r"[Cc]hat template .*(?:is not|not) (?:a built-in|found|recognized)"
        r"|default chat template is no longer allowed"
        r"|supplied chat template .*(?:does not exist|is invalid)|jinja2\.exceptions\.\w+",
        "the chat template is missing or not valid",
        "--chat-template with a file that is there, or a tokenizer that brings one",
    ),
    Signature(
        "cfg-attention-backend",
        r"[Ii]nvalid attention backend|Unsupported attention backend|Selected backend \S+ is not valid"
        r"|No valid attention backend|attention backend .*(?:is|are|does|do) not support"
        r"|Backend does not support speculative|Speculative decoding is (?:currently )?not supported with"
        r"|HybridAttentionBackend does not support|(?:FLASH|TRITON|FLEX|XFORMERS|TORCH_SDPA|CUTLASS"
        r"|FLASHINFER)\w* (?:does not|doesn't) support"
        r"|[Aa]ttention (?:backend )?\S* ?(?:is )?not (?:available|supported)"
        r"|[Aa]ttention sinks?.{0,40}not support|(?:does|do) not (?:currently )?support attention"
        r"|[Uu]nsupported head[_ ](?:dim|size)|[Hh]ead[_ ]?(?:dim|size)\w* .{0,30}not "
        r"supported|only supports? head[_ ](?:dim|size)|kv[_ ]cache[_ ]dtype.{0,60}(?:not|only|invalid|must)"
        r"|No (?:suitable|compatible|supported) (?:attention )?backend",
        "the attention backend chosen does not go with the model or with the other arguments",
        "--attention-backend triton, or no such argument",
        arguments={"attention-backend": "triton"},
        source="sglang#9330, PR 36444",
    ),
    Signature(
        "cfg-speculative",
        r"speculative_(?:num_draft_tokens|eagle_topk|num_steps|draft_model_path)\w* (?:is|must|should"
        r"|should be|cannot)"
        r"|assert .*speculative_\w+|[Dd]raft model .*(?:vocab|hidden)\w* .*(?:mismatch|must|does not match)"
        r"|DFLASH.*(?:does not support|requires|not supported)|[Ss]peculative .*(?:requires"
        r"|does not support|not compatible)",
        "arguments of speculative decoding are missing or do not go together",
        "all of --speculative-num-steps, -eagle-topk and -num-draft-tokens (or none); a drafter made for "
        "this model",
    ),
    Signature(
        "cfg-backend",
        r"[Nn]ot a valid \S+ backend|not a valid \S* ?backend|[Ii]nvalid (?:\w+ ){1,2}backend"
        r"|[Uu]nknown (?:\w+ ){1,2}backend"
        r"|[Uu]nsupported (?:\w+ ){0,2}backend|backend \S+ is not (?:available|supported|installed)"
        r"|[Bb]ackend .{0,40}not (?:available|supported) (?:for|with|on)",
        "a backend was chosen that this version, model or card does not have",
        "one of those that the engine names, or none: it chooses by itself",
    ),
    Signature(
        "cfg-number",
        r"invalid literal for int\(\) with base 10|could not convert string to float",
        "an argument or a variable holds text where a number is wanted (a service named VLLM makes Kubernetes set "
        "VLLM_PORT to an address; CUDA_VISIBLE_DEVICES takes UUIDs not everywhere)",
        "that variable or argument: rename the Kubernetes service, or set a number",
    ),
    Signature(
        "cfg-variable",
        r"KeyError: '[A-Z][A-Z0-9]*_[A-Z0-9_]+'|[Ee]nvironment variable [A-Z]\w+ (?:is (?:not|required|invalid"
        r"|missing)|must|not set|has an invalid)"
        r"|Invalid value for (?:environment variable )?[A-Z]+_|[Mm]issing (?:required )?environment variable"
        r"|Unknown vLLM environment variable"
        r"|Invalid value '\S*' for \w+\. Valid options",
        "an environment variable is not set, or holds a value that is not taken",
        "set it in the unit (Environment=), with a value that this version takes",
    ),
    Signature(
        "cfg-lora",
        r"is greater than max_lora_rank|LoRA .{0,60}(?:not enabled|is disabled|not support)|max_lora_rank .*must"
        r"|does not support LoRA",
        "the arguments of LoRA do not go with the adapter or the model",
        "--enable-lora, and --max-lora-rank of the adapter's rank; a base model that takes adapters",
    ),
    Signature(
        "cfg-tool-choice",
        r"requires --enable-auto-tool-choice|tool choice requires|--tool-call-parser to be set",
        "tool calls are asked for without the arguments that enable them",
        "--enable-auto-tool-choice and --tool-call-parser",
    ),
    Signature(
        "cfg-page-size",
        r"[Pp]age[ _]size .*(?:must|only|not supported|should|requires)|block_size .*must be",
        "the page size does not go with the backend or the other arguments",
        "--page-size 1, or the size that the line names",
    ),
    Signature(
        "cfg-quantization-argument",
        r"Quantization method specified in the model config .*does not match|Unknown quantization method|"
        r"[Ii]nvalid quantization method|[Cc]annot find the config file for \w+",
        "--quantization names another method than the model was quantized with",
        "start without --quantization: the engine reads it from the model",
    ),
    Signature(
        "cfg-dtype",
        r"Current loaded dtype|torch\.bfloat16 is not supported for quantization method"
        r"|expected (?:m1 and m2|mat1 and mat2) to have the same dtype"
        r"|Unknown dtype|dtype .*is not supported for",
        "the dtype asked for does not go with the model's quantization",
        "start without --dtype, or with --dtype half",
    ),
    Signature(
        "cfg-validation",
        r"Value error, |\d+ validation errors? for \w*(?:Config|Args)|pydantic_core\.\S*ValidationError"
        r"|Config\w*Error: |in (?:_handle_\w+|check_server_args|__post_init__|prepare_server_args"
        r"|create_engine_config)$",
        "the engine's check of its arguments failed",
        "the lines around it name the argument: correct it for this engine's version",
        consequence=True,
    ),
    Signature(
        "cfg-multiprocessing",
        r"Cannot re-initialize CUDA in forked subprocess"
        r"|An attempt has been made to start a new process before",
        "a process that already used CUDA was forked",
        "VLLM_WORKER_MULTIPROC_METHOD=spawn, and the main guard in a script of your own",
        variables={"VLLM_WORKER_MULTIPROC_METHOD": "spawn"},
    ),
]
