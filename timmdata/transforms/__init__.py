"timm's transforms of one image: crops, policies, erasing, mixing, by timm's names."
