"""The table of library calls that need no code: function, stage, and how a recorded result stands in for the call.

A row is put in place once its module has been imported (`install` is called again and again), so that rows of what the program does
not use cost nothing. Libraries that take more than a row have a module of their own in this room.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from pipefix.hooks.calls import AUGMENT, DECODE, STORAGE, Calls, How, Patches, SampleTimer, Stage, install_row, wait_stage


def _zarr_stage(array: Any) -> Stage:
    """Compressed chunks are read and unpacked in one call. The third version has several codecs, the second at most one."""
    # Releases that know the second version only have no plural.
    packed = (array.compressors if hasattr(array, "compressors") else array.compressor) or array.filters
    return DECODE if packed else STORAGE


def _tensorstore_stage(array: Any) -> Stage:
    """As with zarr. What each driver calls its codecs is in their JSON."""
    codec = array.codec
    codec_json = codec.to_json() if codec is not None else {}
    packing = [codec for codec in codec_json.get("codecs", ()) if codec.get("name") not in ("bytes", "transpose", "crc32c")]
    packing += [codec_json.get(key) for key in ("compressor", "compression", "encoding")]
    return STORAGE if all(codec in (None, "raw", {"type": "raw"}) for codec in packing) else DECODE


def _zarr_chunks(timer: SampleTimer, args: Sequence[Any], value: Any) -> None:
    array, index = args[0], args[1:2]
    if not index or not hasattr(value, "nbytes") or _zarr_stage(array) is not DECODE:
        return
    place = os.path.basename(str(array.store)) if array.path == "" else array.path
    reads = timer.chunk_reads["a zarr array" if place.endswith(">") else place]
    reads.select(index[0], array.shape, array.chunks, array.dtype.itemsize, value.nbytes)


def _row_groups(timer: SampleTimer, _: Sequence[Any], value: Any) -> None:
    timer.chunk_reads["row groups of Parquet"].unpacked += value.nbytes


def _sending_stage(sender: Any) -> Stage | None:
    """Within the machine it is but a message to another thread or process: an event loop is woken so."""
    return None if getattr(sender, "family", None) == getattr(socket, "AF_UNIX", -1) else STORAGE


_TORCHVISION = (
    "to_tensor pil_to_tensor to_pil_image normalize resize pad crop center_crop resized_crop hflip vflip perspective five_crop"
    " ten_crop adjust_brightness adjust_contrast adjust_saturation adjust_hue adjust_gamma adjust_sharpness rotate affine"
    " to_grayscale rgb_to_grayscale erase gaussian_blur invert posterize solarize autocontrast equalize elastic_transform"
    " convert_image_dtype"
)
_DECORD = ("VideoReader", "AudioReader", "AVReader")
_T = How.TIMED
TABLE = (
    # The standard library. What reads through Python's files has their reads charged to storage, inside.
    Calls("os", "", "stat lstat listdir", STORAGE, "os."),
    Calls("os", "", "scandir", STORAGE, "os.", _T),
    Calls("pathlib", "_NormalAccessor", "stat lstat listdir", STORAGE, "os."),  # Python 3.10 keeps its own references
    Calls("mmap", "mmap", "read readline", STORAGE, "mmap.", _T, counts=len),
    Calls("json", "", "loads", DECODE, "json."),
    Calls("pickle", "", "loads", DECODE, "pickle."),
    Calls("pickle", "", "load", DECODE, "pickle.", How.STREAM),
    *(Calls(module, "", "decompress", DECODE, f"{module}.") for module in ("zlib", "gzip", "bz2", "lzma")),
    # ``readinto`` is what the read buffer of a compressed stream calls; ``read`` and ``readall`` what it calls in turn.
    Calls("gzip", "_GzipReader", "read", DECODE, "compressed stream", _T),
    Calls("_compression", "DecompressReader", "readinto read readall", DECODE, "compressed stream", _T),
    Calls("compression._common._streams", "DecompressReader", "readinto read readall", DECODE, "compressed stream", _T),
    Calls("zipfile", "ZipFile", "read", DECODE, "zipfile.ZipFile."),
    Calls("zipfile", "ZipExtFile", "read read1 readline peek", DECODE, "zip member stream", _T),
    Calls("zipfile", "ZipFile", "_RealGetContents", DECODE, "zip directory", _T),
    Calls("tarfile", "TarFile", "next", DECODE, "tar header", _T),
    # The network. Clients above these can be replaced, if they answer with bytes.
    Calls("http.client", "HTTPConnection", "request getresponse", STORAGE, "http.client.", _T),
    Calls("http.client", "HTTPResponse", "read readinto read1 readline peek", STORAGE, "http.client.HTTPResponse.", _T),
    Calls("socket", "", "create_connection getaddrinfo", STORAGE, "socket.", _T),
    Calls("socket", "socket", "connect", STORAGE, "socket.", _T),
    Calls("socket", "socket", "sendall send", _sending_stage, "socket.", _T),
    Calls("socket", "socket", "recv", STORAGE, "socket.", _T, counts=len),
    Calls("socket", "socket", "recv_into", STORAGE, "socket.", _T, counts=int),
    Calls("ssl", "SSLSocket", "connect do_handshake", STORAGE, "ssl.SSLSocket.", _T),
    Calls("ssl", "SSLSocket", "sendall send", _sending_stage, "ssl.SSLSocket.", _T),
    Calls("ssl", "SSLSocket", "recv", STORAGE, "ssl.SSLSocket.", _T, counts=len),
    Calls("ssl", "SSLSocket", "recv_into", STORAGE, "ssl.SSLSocket.", _T, counts=int),
    # Arrays and tensors.
    Calls("numpy", "", "loadtxt genfromtxt", DECODE, "numpy."),
    Calls("numpy.lib.npyio", "NpzFile", "__getitem__", DECODE, "numpy.load(npz)[key]"),
    Calls("torch", "", "load", DECODE, "torch.", How.STREAM),
    Calls("h5py", "Dataset", "read_direct", STORAGE, "h5py.Dataset.", _T),
    Calls("h5py", "Group", "__getitem__", STORAGE, "h5py.Group[name]", _T),
    Calls("zarr", "Array", "__getitem__", _zarr_stage, "zarr.Array[selection]", into="out", unpacks=_zarr_chunks),
    Calls("zarr", "Array", "get_basic_selection get_orthogonal_selection get_mask_selection get_coordinate_selection",
          _zarr_stage, "zarr.Array[selection]", into="out"),
    # It reads and unpacks in threads of its own: what a sample waits for is the cost.
    Calls("tensorstore", "TensorStore", "read", _tensorstore_stage, "tensorstore.TensorStore.", How.FUTURE),
    Calls("tensorstore", "TensorStore", "__array__", _tensorstore_stage, "tensorstore.TensorStore."),
    Calls("tensorstore", "Future", "result", wait_stage, "tensorstore.Future."),
    Calls("scipy.signal", "", "resample resample_poly decimate lfilter filtfilt sosfilt sosfiltfilt savgol_filter medfilt medfilt2d"
          " wiener hilbert detrend fftconvolve oaconvolve convolve convolve2d correlate correlate2d spectrogram stft istft"
          " periodogram welch find_peaks", AUGMENT, "scipy.signal."),
    Calls("scipy.ndimage", "", "zoom rotate shift affine_transform geometric_transform map_coordinates spline_filter"
          " gaussian_filter gaussian_filter1d uniform_filter median_filter maximum_filter minimum_filter percentile_filter sobel"
          " laplace convolve convolve1d correlate correlate1d label binary_erosion binary_dilation binary_fill_holes grey_erosion"
          " grey_dilation distance_transform_edt", AUGMENT, "scipy.ndimage."),
    Calls("scipy.fft", "", "fft ifft rfft irfft fft2 ifft2 fftn ifftn dct idct dctn idctn", AUGMENT, "scipy.fft."),
    # Pictures.
    Calls("PIL.Image", "Image", "resize crop rotate transpose transform filter point quantize reduce split getchannel remap_palette"
          " effect_spread", AUGMENT, "PIL.Image."),
    Calls("PIL.Image", "Image", "thumbnail paste putalpha putpixel putdata putpalette alpha_composite apply_transparency", AUGMENT,
          "PIL.Image.", _T),
    Calls("PIL.Image", "", "blend composite alpha_composite merge eval", AUGMENT, "PIL.Image."),
    Calls("PIL.ImageOps", "", "autocontrast colorize contain cover pad crop scale deform equalize expand fit flip grayscale invert"
          " mirror posterize solarize", AUGMENT, "PIL.ImageOps."),
    Calls("PIL.ImageOps", "", "exif_transpose", DECODE, "PIL.ImageOps."),
    Calls("PIL.ImageEnhance", "_Enhance", "enhance", AUGMENT, "PIL.ImageEnhance."),
    Calls("PIL.ImageDraw", "ImageDraw", "arc bitmap chord ellipse line multiline_text pieslice point polygon rectangle"
          " rounded_rectangle text", AUGMENT, "PIL.ImageDraw.", _T),
    Calls("cv2", "", "imdecode imreadmulti", DECODE, "cv2."),
    Calls("cv2", "", "resize@2 flip@2 rotate@2 transpose@1 cvtColor@2 warpAffine@3 warpPerspective@3 warpPolar@5 remap@4"
          " GaussianBlur@3 blur@2 boxFilter@3 medianBlur@2 bilateralFilter@4 filter2D@3 sepFilter2D@4 LUT@2 normalize@1"
          " copyMakeBorder@6 addWeighted@5 add@2 subtract@2 multiply@2 absdiff@2 bitwise_and@2 bitwise_or@2 bitwise_xor@2"
          " bitwise_not@1 equalizeHist@1 convertScaleAbs@1 threshold@4 adaptiveThreshold@6 split@1 merge@1 erode@2 dilate@2"
          " morphologyEx@3 Canny@3 Sobel@4 Scharr@4 Laplacian@2 pyrDown@1 pyrUp@1 undistort@3 inRange@3 getRectSubPix@3 hconcat@1"
          " vconcat@1 applyColorMap@2 fastNlMeansDenoising@1 fastNlMeansDenoisingColored@1 distanceTransform@3",
          AUGMENT, "cv2.", into="dst"),
    Calls("cv2", "", "rectangle line circle ellipse polylines fillPoly putText drawContours", AUGMENT, "cv2.", _T),
    Calls("torchvision.io.image", "", "decode_jpeg decode_png decode_gif decode_webp decode_avif decode_heic", DECODE,
          "torchvision.io."),
    Calls("torchvision.transforms.functional", "", _TORCHVISION, AUGMENT, "F."),
    Calls("torchvision.transforms.v2.functional", "", f"{_TORCHVISION} to_image to_dtype elastic gaussian_noise horizontal_flip"
          " vertical_flip grayscale_to_rgb jpeg permute_channels uniform_temporal_subsample sanitize_bounding_boxes"
          " clamp_bounding_boxes convert_bounding_box_format", AUGMENT, "v2.F."),
    *(Calls(module, "", "imread mimread volread improps immeta", DECODE, "imageio.")
      for module in ("imageio", "imageio.v2", "imageio.v3")),
    Calls("transformers.image_processing_base", "ImageProcessingMixin", "__call__ preprocess", AUGMENT, "image_processor."),
    # Samples of WebDataset: whatever a decoder calls is part of it, except what augments.
    Calls("webdataset.autodecode", "Decoder", "decode1", DECODE, "webdataset.Decoder."),
    Calls("webdataset.gopen", "Pipe", "read readLine", STORAGE, "webdataset.Pipe.", _T, counts=len),
    # Medical images.
    Calls("pydicom", "", "dcmread read_file", DECODE, "pydicom."),
    Calls("pydicom", "Dataset", "pixel_array", DECODE, "pydicom.Dataset.", How.PROPERTY),
    Calls("pydicom.pixels", "", "pixel_array", DECODE, "pydicom.pixels."),
    Calls("pydicom.pixels", "", "apply_modality_lut apply_voi_lut apply_windowing", AUGMENT, "pydicom."),
    Calls("SimpleITK", "", "ReadImage", DECODE, "SimpleITK.", How.FILE),
    Calls("SimpleITK", "", "GetArrayFromImage", DECODE, "SimpleITK."),
    Calls("SimpleITK", "ImageFileReader", "Execute", DECODE, "SimpleITK.ImageFileReader."),
    Calls("SimpleITK", "ImageSeriesReader", "Execute", DECODE, "SimpleITK.ImageSeriesReader."),
    Calls("SimpleITK", "ResampleImageFilter", "Execute", AUGMENT, "SimpleITK.ResampleImageFilter."),
    Calls("SimpleITK", "", "Resample RescaleIntensity IntensityWindowing Normalize Clamp Cast DiscreteGaussian"
          " SmoothingRecursiveGaussian CurvatureFlow CurvatureAnisotropicDiffusion N4BiasFieldCorrection HistogramMatching"
          " AdaptiveHistogramEqualization Median Crop ConstantPad MirrorPad Flip PermuteAxes DICOMOrient RegionOfInterest"
          " OtsuThreshold BinaryThreshold Expand Shrink BinShrink", AUGMENT, "SimpleITK."),
    Calls("batchgenerators.augmentations.spatial_transformations", "", "augment_rot90 augment_resize augment_zoom augment_mirroring"
          " augment_channel_translation augment_spatial augment_spatial_2 augment_transpose_axes augment_anatomy_informed"
          " augment_misalign", AUGMENT, "batchgenerators."),
    Calls("batchgenerators.augmentations.noise_augmentations", "", "augment_rician_noise augment_gaussian_noise"
          " augment_gaussian_blur augment_blank_square_noise", AUGMENT, "batchgenerators."),
    Calls("batchgenerators.augmentations.color_augmentations", "", "augment_contrast augment_brightness_additive"
          " augment_brightness_multiplicative augment_gamma augment_illumination augment_PCA_shift", AUGMENT, "batchgenerators."),
    Calls("batchgenerators.augmentations.resample_augmentations", "", "augment_linear_downsampling_scipy", AUGMENT,
          "batchgenerators."),
    Calls("batchgenerators.augmentations.crop_and_pad_augmentations", "", "center_crop crop random_crop pad_nd_image_and_seg",
          AUGMENT, "batchgenerators."),
    Calls("batchgenerators.augmentations.normalizations", "", "range_normalization min_max_normalization"
          " zero_mean_unit_variance_normalization mean_std_normalization cut_off_outliers", AUGMENT, "batchgenerators."),
    Calls("batchgenerators.augmentations.utils", "", "resize_segmentation resize_multichannel_image pad_nd_image"
          " convert_seg_image_to_one_hot_encoding", AUGMENT, "batchgenerators."),
    *(Calls("batchgeneratorsv2.transforms.base.basic_transform", kind, "apply", AUGMENT, "batchgeneratorsv2.")
      for kind in ("BasicTransform", "ImageOnlyTransform", "SegOnlyTransform")),
    Calls("batchgeneratorsv2.transforms.spatial.spatial", "SpatialTransform", "get_parameters", AUGMENT,
          "batchgeneratorsv2.SpatialTransform."),
    # Videos: FFmpeg reads and decodes in one call, all of which is charged to decode.
    Calls("av", "VideoFrame", "to_ndarray to_image to_rgb reformat", DECODE, "av.VideoFrame."),
    Calls("av", "AudioFrame", "to_ndarray", DECODE, "av.AudioFrame."),
    Calls("av", "", "open", DECODE, "av.", _T),
    Calls("av", "container.InputContainer", "decode demux", DECODE, "av.", How.STEPS),
    Calls("av", "container.InputContainer", "seek", DECODE, "av."),
    Calls("av", "Packet", "decode", DECODE, "av.Packet."),
    Calls("av", "AudioResampler", "resample", AUGMENT, "av.AudioResampler."),
    Calls("cv2", "VideoCapture", "grab set", DECODE, "cv2.VideoCapture."),
    Calls("cv2", "VideoCapture", "open", DECODE, "cv2.VideoCapture.", _T),
    Calls("cv2", "VideoCapture", "read@1 retrieve@1", DECODE, "cv2.VideoCapture.", into="image"),
    Calls("cv2", "VideoCapture", "__init__", DECODE, "cv2.VideoCapture", _T),
    *(Calls("decord", kind, "__init__ seek seek_accurate", DECODE, f"decord.{kind}.", _T) for kind in _DECORD),
    *(Calls("decord", kind, "__getitem__ get_batch next", DECODE, f"decord.{kind}.") for kind in _DECORD),
    Calls("decord", "nd.NDArray", "asnumpy", DECODE, "decord.NDArray."),
    *(Calls("torchcodec.decoders", kind, "__init__", DECODE, f"torchcodec.{kind}.", _T)
      for kind in ("VideoDecoder", "AudioDecoder", "WavDecoder")),
    Calls("torchcodec.decoders", "VideoDecoder", "__getitem__ get_frame_at get_frames_at get_frames_in_range get_frame_played_at"
          " get_frames_played_at get_frames_played_in_range get_all_frames", DECODE, "torchcodec.VideoDecoder."),
    *(Calls("torchcodec.decoders", kind, "get_all_samples get_samples_played_in_range", DECODE, f"torchcodec.{kind}.")
      for kind in ("AudioDecoder", "WavDecoder")),
    Calls("torchvision.io", "", "read_video read_video_timestamps", DECODE, "torchvision.io."),
    # Sounds.
    Calls("soundfile", "", "read", DECODE, "soundfile.", How.FILE, ("frames", "start", "stop")),
    Calls("soundfile", "", "info", DECODE, "soundfile."),
    Calls("soundfile", "SoundFile", "__init__ buffer_read_into", DECODE, "soundfile.SoundFile.", _T),
    Calls("soundfile", "SoundFile", "read buffer_read", DECODE, "soundfile.SoundFile."),
    Calls("torchaudio", "", "load", DECODE, "torchaudio.", How.FILE, ("frame_offset", "num_frames")),
    Calls("torchaudio", "", "info", DECODE, "torchaudio."),
    Calls("torchaudio.functional", "", "resample spectrogram inverse_spectrogram griffinlim amplitude_to_DB DB_to_amplitude"
          " compute_deltas create_dct melscale_fbanks mu_law_encoding mu_law_decoding phase_vocoder pitch_shift speed fftconvolve"
          " sliding_window_cmn spectral_centroid apply_codec vad gain dither fade lfilter filtfilt biquad highpass_biquad"
          " lowpass_biquad bandpass_biquad equalizer_biquad treble_biquad bass_biquad overdrive contrast convolve add_noise"
          " preemphasis deemphasis loudness mask_along_axis mask_along_axis_iid detect_pitch_frequency", AUGMENT,
          "torchaudio.functional."),
    Calls("torchaudio.compliance.kaldi", "", "fbank mfcc spectrogram", AUGMENT, "torchaudio.compliance.kaldi."),
    Calls("librosa.core.audio", "", "load", DECODE, "librosa.", How.FILE, ("offset", "duration")),
    Calls("librosa.core.audio", "", "resample to_mono mu_compress mu_expand autocorrelate lpc zero_crossings", AUGMENT, "librosa."),
    Calls("librosa.core.spectrum", "", "stft istft griffinlim phase_vocoder magphase power_to_db db_to_power amplitude_to_db"
          " db_to_amplitude perceptual_weighting fmt pcen", AUGMENT, "librosa."),
    Calls("librosa.core.constantq", "", "cqt vqt icqt", AUGMENT, "librosa."),
    Calls("librosa.effects", "", "hpss harmonic percussive time_stretch pitch_shift remix trim split preemphasis deemphasis",
          AUGMENT, "librosa."),
    Calls("librosa.feature.spectral", "", "melspectrogram mfcc chroma_stft chroma_cqt spectral_centroid spectral_bandwidth"
          " spectral_contrast spectral_rolloff rms zero_crossing_rate tonnetz poly_features", AUGMENT, "librosa."),
    # Text to token ids.
    Calls("tokenizers", "Tokenizer", "encode encode_batch encode_batch_fast", DECODE, "tokenizers.Tokenizer."),
    Calls("transformers.tokenization_utils_base", "PreTrainedTokenizerBase", "__call__ encode encode_plus batch_encode_plus"
          " tokenize convert_tokens_to_ids", DECODE, "tokenizer."),
    Calls("tiktoken", "Encoding", "encode encode_ordinary encode_to_numpy encode_batch encode_ordinary_batch encode_with_unstable",
          DECODE, "tiktoken.Encoding."),
    Calls("sentencepiece", "SentencePieceProcessor", "Encode EncodeAsPieces EncodeAsIds EncodeAsNumpy SampleEncodeAsPieces"
          " SampleEncodeAsIds NBestEncode NBestEncodeAsPieces NBestEncodeAsIds ParallelEncode encode encode_as_pieces encode_as_ids"
          " encode_as_numpy sample_encode_as_pieces sample_encode_as_ids nbest_encode nbest_encode_as_pieces nbest_encode_as_ids"
          " parallel_encode tokenize Tokenize", DECODE, "sentencepiece."),
    # Tables.
    Calls("datasets.formatting.formatting", "", "query_table", STORAGE, "datasets.", counts=lambda table: int(table.nbytes)),
    Calls("datasets.formatting.formatting", "", "format_table", DECODE, "datasets.", leaf=False),
    Calls("datasets.features.features", "Features", "decode_example", DECODE, "datasets."),
    Calls("pandas", "", "read_csv read_table read_fwf read_json read_parquet read_feather read_orc read_pickle read_hdf read_excel"
          " read_xml read_stata read_sas read_spss", DECODE, "pandas."),
    Calls("polars", "", "read_csv read_parquet read_ipc read_json read_ndjson read_avro", DECODE, "polars.", How.FILE,
          ("columns", "n_rows")),
    Calls("polars", "LazyFrame", "collect", DECODE, "polars.LazyFrame."),
    Calls("polars", "DataFrame", "to_numpy to_torch to_pandas to_dicts rows", DECODE, "polars.DataFrame."),
    Calls("pyarrow.parquet.core", "", "read_table", DECODE, "pyarrow.parquet.", How.FILE, ("columns", "filters")),
    Calls("pyarrow.parquet.core", "", "read_metadata", DECODE, "pyarrow.parquet."),
    Calls("pyarrow.parquet.core", "ParquetFile", "__init__", DECODE, "pyarrow.ParquetFile.", _T),
    Calls("pyarrow.parquet.core", "ParquetFile", "read read_row_group read_row_groups", DECODE, "pyarrow.ParquetFile.",
          unpacks=_row_groups),
    Calls("pyarrow.csv", "", "read_csv", DECODE, "pyarrow.csv.", How.FILE),
    Calls("pyarrow.json", "", "read_json", DECODE, "pyarrow.json.", How.FILE),
    Calls("pyarrow.feather", "", "read_table read_feather", DECODE, "pyarrow.feather.", How.FILE, ("columns",)),
    Calls("pyarrow.ipc", "", "open_file open_stream", STORAGE, "pyarrow.ipc.", _T),
    Calls("pyarrow.ipc", "RecordBatchFileReader", "get_batch get_record_batch read_all read_pandas", STORAGE, "pyarrow.ipc."),
    Calls("pyarrow.ipc", "RecordBatchStreamReader", "read_next_batch read_all read_pandas", STORAGE, "pyarrow.ipc."),
    Calls("obstore", "", "list", STORAGE, "obstore.", _T),
)  # fmt: skip


def install(timer: SampleTimer, patches: Patches) -> list[str]:
    """Put the rows of modules in place that have been imported by now. Returns the modules."""
    marks = {f"calls of {row.module}": row.module for row in TABLE if row.module in sys.modules}
    added = [module for mark, module in marks.items() if mark not in patches.installed]
    for row in TABLE:
        if row.module in added:
            install_row(row, timer, patches)
    patches.installed |= marks.keys()
    return added
